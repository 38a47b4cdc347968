package io.holdfast.spark;

import io.holdfast.spark.badrows.SetRowsAside;
import io.holdfast.spark.driver.DefaultProvider;
import io.holdfast.spark.driver.HoldfastDriver;
import io.holdfast.spark.isolation.driver.DecisionService;
import io.holdfast.spark.isolation.plan.IsolateFailures;
import io.holdfast.spark.plan.TransformWithStateNodes; // from-4.2
import org.apache.spark.SparkContext;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.internal.SQLConf;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/**
 * Changes the plans of queries with state in Holdfast: nodes of {@code transformWithState}, and
 * guards that isolate failures.
 *
 * <p>Spark finds this class as a service of the plugin's jar, so users need no setting, and {@code
 * spark.sql.extensions} stays free. The hook is a columnar rule: no other rule sees the plan of a
 * micro-batch after Spark has given its operators their state.
 */
public final class HoldfastSessionExtensions implements SparkSessionExtensionsProvider {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectColumnar(session -> new Hook());
    return BoxedUnit.UNIT;
  }

  private static final class Hook extends ColumnarRule {
    @Override
    public Rule<SparkPlan> preColumnarTransitions() {
      return new ChangePlans();
    }
  }

  private static final class ChangePlans extends Rule<SparkPlan> {
    @Override
    public SparkPlan apply(SparkPlan plan) {
      SQLConf conf = plan.conf();
      if (!HoldfastConf.PROVIDER_CLASS.equals(conf.stateStoreProviderClass())) {
        DefaultProvider.requireWanted(
            plan, HoldfastDriver.started().map(HoldfastDriver::defaultProvider));
        return plan;
      }
      SparkPlan changed = TransformWithStateNodes.replaced(plan); // from-4.2
      // until-4.1: SparkPlan changed = plan;
      boolean byRow = HoldfastConf.setsRowsAside(conf::getConfString);
      boolean byPartition = HoldfastConf.isolatesFailures(conf::getConfString);
      return byRow || byPartition ? guarded(changed, byRow, byPartition) : changed;
    }

    private static SparkPlan guarded(SparkPlan plan, boolean byRow, boolean byPartition) {
      HoldfastConf conf = new HoldfastConf(CollectionConverters.asJava(plan.conf().getAllConfs()));
      DecisionService decisions = HoldfastDriver.running().decisions();
      SparkContext spark = plan.sparkContext();
      SparkPlan guarded = byRow ? new SetRowsAside(decisions, spark, conf).apply(plan) : plan;
      return byPartition ? new IsolateFailures(decisions, spark, conf).apply(guarded) : guarded;
    }
  }
}
