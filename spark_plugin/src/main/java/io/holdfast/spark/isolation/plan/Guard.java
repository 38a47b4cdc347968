package io.holdfast.spark.isolation.plan;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.isolation.driver.BatchPlan;
import io.holdfast.spark.isolation.driver.DecisionService;
import io.holdfast.spark.isolation.driver.QueryRun;
import io.holdfast.spark.isolation.driver.SparkSide;
import io.holdfast.spark.isolation.task.GuardRDD;
import io.holdfast.spark.isolation.task.InputForm;
import io.holdfast.spark.isolation.task.KeyGroups;
import io.holdfast.spark.isolation.task.ParkTask;
import io.holdfast.spark.isolation.task.ParkedMetrics;
import io.holdfast.spark.isolation.task.PendingBatch;
import io.holdfast.spark.isolation.task.StoreAccess;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import io.holdfast.spark.store.StoreMetrics;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;

/**
 * The findings of the rule about a guarded stage of Spark.
 *
 * @param input describes the rows of the exchanges below the operator
 * @param attempts failures of a task in one batch after which its partition is parked
 * @param seals whether the sink commits only after {@link DecisionService#seal}
 * @param keys groups them; null if only whole partitions are parked
 * @param passes copies of the stage, one for each batch with pending rows, oldest first
 */
record Guard(
    DecisionService decisions,
    QueryRun run,
    StatefulOperatorStateInfo state,
    Map<String, Long> times,
    InputForm input,
    List<Pass> passes,
    HoldfastConf conf,
    int attempts,
    boolean seals,
    KeyGroups keys,
    long retainedBatches)
    implements GuardExec.Execution {
  /** A copy of the stage for the pending rows of a batch. */
  record Pass(PendingBatch input, SparkPlan stage) {}

  GuardKey key() {
    return new GuardKey(state.queryRunId(), state.storeVersion(), state.operatorId());
  }

  private BatchPlan batch(String name) {
    Map<Integer, List<Long>> pending = new TreeMap<>();
    for (Pass pass : passes) {
      for (int partition : pass.input().ids().keySet()) {
        pending.computeIfAbsent(partition, key -> new ArrayList<>()).add(pass.input().batch());
      }
    }
    return new BatchPlan(
        state.operatorId(),
        name,
        times,
        pending,
        state.numPartitions(),
        seals,
        keys != null,
        decisions.isRerun(run.checkpoint(), state.storeVersion()),
        conf.isolationRerunsPark,
        retainedBatches,
        new BatchPlan.Limits(attempts, conf.isolationMaxBatches, parkedMax()));
  }

  /** At least one partition may be parked, and never all. */
  private int parkedMax() {
    // 0.29 of 100 are 29, which floats make 28.
    int share = (int) Math.floor(conf.isolationMaxRatio * state.numPartitions() + 1e-9);
    return Math.min(state.numPartitions() - 1, Math.max(1, share));
  }

  @Override
  public RDD<InternalRow> execute(SparkPlan child) {
    RDD<InternalRow> stage = child.execute();
    // Rules that ran after the guard's made other nodes of the nodes that it saw.
    List<SparkPlan> path = Stages.pathToOperator(child);
    SparkPlan operator = path.get(path.size() - 1);
    List<RDD<InternalRow>> inputs = executed(Stages.inputs(operator));
    List<RDD<InternalRow>> replayed = executed(passes.stream().map(Pass::stage).toList());
    StateStoreWriter writer = (StateStoreWriter) operator;
    SparkSide side = decisions.guard(key(), run, () -> batch(writer.shortName()));
    ParkTask parking =
        new ParkTask(
            StoreAccess.of(writer),
            state.storeVersion(),
            input,
            keys,
            conf.isolationMaxBytes,
            ParkedMetrics.of(writer),
            writer.checkpointInfoAccumulator());
    GuardRDD guarded =
        new GuardRDD(
            stage,
            inputs,
            replayed,
            state,
            passes.stream().map(Pass::input).toList(),
            parking,
            side.ofTasks(state.numPartitions()));
    side.guards(
        guarded.id(),
        writer.checkpointInfoAccumulator(),
        ParkedMetrics.metric(writer, StoreMetrics.PARKED_SINCE));
    return guarded;
  }

  private static List<RDD<InternalRow>> executed(List<SparkPlan> plans) {
    List<RDD<InternalRow>> rows = new ArrayList<>();
    plans.forEach(plan -> rows.add(plan.execute()));
    return rows;
  }

  /** For {@code explain}. */
  @Override
  public String toString() {
    return "operator " + state.operatorId();
  }
}
