package io.holdfast.spark.badrows;

import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.isolation.driver.DecisionService;
import io.holdfast.spark.isolation.driver.QueryRun;
import io.holdfast.spark.isolation.driver.SparkSide;
import io.holdfast.spark.isolation.plan.GuardExec;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import scala.Option;

/**
 * The findings of the rule about a stage behind a source.
 *
 * @param sources leaves of the stage; several are in a union
 * @param readsAhead the stage may read rows before it throws for an earlier one
 * @param rerun an earlier run began the batch
 */
record RowGuard(
    DecisionService decisions,
    QueryRun run,
    GuardKey key,
    HoldfastConf.BadRows bounds,
    List<SparkPlan> sources,
    boolean readsAhead,
    boolean rerun,
    MicroBatchExecution query,
    long retained)
    implements GuardExec.Execution {
  @Override
  public RDD<InternalRow> execute(SparkPlan child) {
    RDD<InternalRow> stage = child.execute();
    int partitions = stage.partitions().length;
    SparkSide side = decisions.guard(key, run, () -> plan(partitions));
    RowGuardRDD guarded = new RowGuardRDD(stage, side.ofTasks(partitions), readsAhead);
    side.guards(guarded.id(), read -> estimate(read, partitions, side.throughCount()));
    return guarded;
  }

  /** The stage in this batch, as the core reads it: {@code Plan} in its messages.rs. */
  private ObjectNode plan(int partitions) {
    ObjectNode plan =
        JsonNodeFactory.instance
            .objectNode()
            .put("source", sources.get(0).nodeName())
            .put("form", sources.get(0).schema().json())
            .put("partitions", partitions)
            .put("rerun", rerun)
            .put("sameProgram", !rerun || Program.repeating(query, run.checkpoint(), run.conf()))
            .put("retained", retained);
    long perMillion = Math.round(bounds.ratio() * 1_000_000);
    plan.putObject("limits").put("rows", bounds.max()).put("perMillion", perMillion);
    return plan;
  }

  /** All rows of the batch, by those of tasks that have ended and of one that is about to. */
  private long estimate(long read, int partitions, int ended) {
    long done = 0;
    for (SparkPlan source : sources) {
      Option<SQLMetric> rows = source.metrics().get("numOutputRows");
      done += rows.isDefined() ? rows.get().value() : 0;
    }
    return (done + read) * partitions / (ended + 1);
  }

  /** For {@code explain}. */
  @Override
  public String toString() {
    return "rows of source " + source();
  }

  /** The number of the source in the plan. */
  long source() {
    return -1 - key.operator();
  }
}
