package io.holdfast.spark.badrows;

import io.holdfast.spark.executor.HoldfastExecutor;
import io.holdfast.spark.isolation.task.AtEnd;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.rpc.DriverRequest.Attempt;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import java.util.Set;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.util.CollectionAccumulator;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;

/** The rows of a stage behind a source, without those of bad rows. */
final class RowGuardRDD extends RDD<InternalRow> {
  private static final long serialVersionUID = 1L;

  private final RDD<InternalRow> stage;
  private final GuardKey key;
  private final boolean readsAhead;

  /** Partitions whose tasks ask first. Each stage attempt takes what the driver knows then. */
  private final Set<Integer> suspects;

  /** Receives the partitions that a task delivered to the end. */
  private final CollectionAccumulator<Integer> through;

  private final int count;

  RowGuardRDD(
      RDD<InternalRow> stage,
      GuardKey key,
      boolean readsAhead,
      Set<Integer> suspects,
      CollectionAccumulator<Integer> through) {
    super(stage, ClassTag$.MODULE$.apply(InternalRow.class));
    this.stage = stage;
    this.key = key;
    this.readsAhead = readsAhead;
    this.suspects = suspects;
    this.through = through;
    count = stage.partitions().length;
  }

  @Override
  public Partition[] getPartitions() {
    return stage.partitions();
  }

  @Override
  public Iterator<InternalRow> compute(Partition split, TaskContext task) {
    int partition = split.index();
    Attempt attempt = Attempt.of(task);
    boolean moved = task.partitionId() != partition && task.numPartitions() == count;
    if (!attempt.isAgain() && !moved && !suspects.contains(partition)) {
      return new AtEnd(stage.iterator(split, task), () -> through.add(partition));
    }
    HoldfastExecutor executor = HoldfastExecutor.running();
    DriverReply.RowDecision decision =
        executor.decideRows(
            new DriverRequest.Decide(key, attempt, partition, task.taskAttemptId()));
    LeftOut leftOut = new LeftOut(decision.named(), task);
    if (decision.searches()) {
      Runnable tooMany = () -> executor.settle(settled(attempt, partition, leftOut, 0));
      new RowSearch(stage, split, task, readsAhead, leftOut, decision.rowsMax(), tooMany).run();
    }
    if (leftOut.isEmpty()) {
      return new AtEnd(stage.iterator(split, task), () -> through.add(partition));
    }
    Iterator<InternalRow> rows = SourceInput.with(leftOut, () -> stage.iterator(split, task));
    return new AtEnd(
        rows,
        () -> {
          executor.settle(settled(attempt, partition, leftOut, leftOut.read()));
          through.add(partition);
        });
  }

  private DriverRequest.SettleRows settled(
      Attempt attempt, int partition, LeftOut leftOut, long read) {
    return new DriverRequest.SettleRows(key, attempt, partition, leftOut.toJson(), read);
  }
}
