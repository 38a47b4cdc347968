package io.holdfast.spark.isolation;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import io.holdfast.spark.store.StoreMetrics;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.fs.Path;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;

/**
 * The findings of the rule about a guarded stage.
 *
 * @param times of the batch
 * @param input describes the rows of the exchanges below the operator
 * @param attempts failures of a task in one batch after which its partition is parked
 * @param seals whether the sink commits only after {@link DecisionService#seal}
 * @param keys groups them; null if only whole partitions are parked
 * @param passes copies of the stage, one for each batch whose input is pending, oldest first
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
  /**
   * A copy of the stage for the rows that were parked in a batch.
   *
   * @param input of the batch
   */
  record Pass(PendingBatch input, SparkPlan stage) {
    long batch() {
      return input.batch();
    }

    /** Partitions whose rows of the batch are pending. */
    Set<Integer> partitions() {
      return input.ids().keySet();
    }
  }

  GuardKey key() {
    return new GuardKey(state.queryRunId(), state.storeVersion(), state.operatorId());
  }

  /** Begins to guard the batch. */
  GuardedBatch begin(String name) {
    long batch = state.storeVersion();
    Set<Long> batches = new HashSet<>();
    Map<Integer, List<Long>> pending = new HashMap<>();
    for (Pass pass : passes) {
      batches.add(pass.batch());
      for (int partition : pass.partitions()) {
        pending.computeIfAbsent(partition, key -> new ArrayList<>()).add(pass.batch());
      }
    }
    run.forgetBefore(batch - retainedBatches, batches);
    boolean rerun = decisions.isRerun(new Path(state.checkpointLocation()).getParent(), batch);
    Marker marker = run.marker(batch);
    boolean reached = rerun && !(seals && marker != null && !marker.sealed());
    String closed =
        reached && !conf.isolationRerunsPark
            ? "an earlier run may have given the rows of this batch to the sink"
                + " (isolation_rerun)"
            : null;
    return decisions.guard(
        key(),
        () -> {
          if (!rerun) {
            // Somebody may have gone back to an earlier batch.
            run.forgetFrom(batch);
          }
          return new GuardedBatch(this, name, pending, reached, closed);
        });
  }

  /** At least one partition may be parked, and never all. */
  int parkedMax() {
    // 0.29 of 100 are 29, which floats make 28.
    int share = (int) Math.floor(conf.isolationMaxRatio * state.numPartitions() + 1e-9);
    return Math.min(state.numPartitions() - 1, Math.max(1, share));
  }

  @Override
  public RDD<InternalRow> execute(SparkPlan child) {
    RDD<InternalRow> stage = child.execute();
    // Rules that ran behind the guard's made other nodes of those that it saw.
    List<SparkPlan> path = Stages.pathToOperator(child);
    SparkPlan operator = path.get(path.size() - 1);
    List<RDD<InternalRow>> inputs = executed(Stages.inputs(operator));
    List<RDD<InternalRow>> replayed = executed(passes.stream().map(Pass::stage).toList());
    StateStoreWriter writer = (StateStoreWriter) operator;
    GuardedBatch batch = begin(writer.shortName());
    batch.reports(writer.checkpointInfoAccumulator());
    GuardRDD guarded =
        new GuardRDD(child.sparkContext(), stage, inputs, replayed, this, writer, batch);
    batch.showSince(ParkedMetrics.metric(writer, StoreMetrics.PARKED_SINCE));
    batch.rdds.add(guarded.id());
    return guarded;
  }

  private static List<RDD<InternalRow>> executed(List<SparkPlan> plans) {
    List<RDD<InternalRow>> rows = new ArrayList<>();
    plans.forEach(plan -> rows.add(plan.execute()));
    return rows;
  }

  /** The text that {@code explain} shows. */
  @Override
  public String toString() {
    return "operator " + state.operatorId();
  }
}
