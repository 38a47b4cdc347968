package io.holdfast.spark;

import io.holdfast.spark.plan.HoldfastTransformWithStateExec;
import io.holdfast.spark.plan.HoldfastTransformWithStateInPySparkExec;
import org.apache.spark.sql.SparkSessionExtensions;
import org.apache.spark.sql.SparkSessionExtensionsProvider;
import org.apache.spark.sql.catalyst.rules.Rule;
import org.apache.spark.sql.execution.ColumnarRule;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec;
import scala.PartialFunction$;
import scala.runtime.BoxedUnit;

/**
 * Lets {@code transformWithState} run on Holdfast. Spark's nodes compare the name of the configured
 * provider with that of its RocksDB provider. A plan for Holdfast gets nodes that do not.
 *
 * <p>Spark finds this class as a service of the plugin's jar, so users need no setting for it, and
 * {@code spark.sql.extensions} stays free. The hook is a columnar rule: no other rule sees the plan
 * of a micro-batch after Spark has given its operators their state.
 */
public final class HoldfastSessionExtensions implements SparkSessionExtensionsProvider {
  @Override
  public BoxedUnit apply(SparkSessionExtensions extensions) {
    extensions.injectColumnar(session -> new TransformWithStateOnHoldfast());
    return BoxedUnit.UNIT;
  }

  private static final class TransformWithStateOnHoldfast extends ColumnarRule {
    @Override
    public Rule<SparkPlan> preColumnarTransitions() {
      return new ReplaceNodes();
    }
  }

  private static final class ReplaceNodes extends Rule<SparkPlan> {
    @Override
    public SparkPlan apply(SparkPlan plan) {
      return plan.transformUp(PartialFunction$.MODULE$.fromFunction(ReplaceNodes::replaced));
    }

    /** Replaces exactly Spark's own nodes, and no subclasses. */
    private static SparkPlan replaced(SparkPlan node) {
      if (node.getClass() == TransformWithStateExec.class) {
        TransformWithStateExec spark = (TransformWithStateExec) node;
        return onHoldfast(spark, spark.isStreaming())
            ? HoldfastTransformWithStateExec.of(spark, spark.child(), spark.initialState())
            : spark;
      }
      if (node.getClass() == TransformWithStateInPySparkExec.class) {
        TransformWithStateInPySparkExec spark = (TransformWithStateInPySparkExec) node;
        return onHoldfast(spark, spark.isStreaming())
            ? HoldfastTransformWithStateInPySparkExec.of(spark, spark.child(), spark.initialState())
            : spark;
      }
      return node;
    }

    /** A batch query keeps its state in a temporary store of Spark, for every provider. */
    private static boolean onHoldfast(SparkPlan node, boolean streaming) {
      return streaming
          && HoldfastConf.PROVIDER_CLASS.equals(node.conf().stateStoreProviderClass());
    }
  }
}
