package io.holdfast.spark.isolation.task;

import io.holdfast.spark.rpc.DriverRequest.Attempt;
import io.holdfast.spark.rpc.DriverRequest.Decide;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import io.holdfast.spark.rpc.DriverRequest.Part;
import java.io.Serializable;
import java.util.Set;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.util.CollectionAccumulator;
import scala.collection.Iterator;

/**
 * A guarded stage in one batch, as its tasks see it.
 *
 * @param suspects partitions whose tasks ask first. Each stage attempt takes what the driver knows
 *     then.
 * @param through receives the partitions that a task delivered or parked to the end
 */
public record TaskSide(
    GuardKey key, int partitions, Set<Integer> suspects, CollectionAccumulator<Integer> through)
    implements Serializable {
  /** The question of a task about a partition; null if the task begins without one. */
  public Decide question(int partition, TaskContext task) {
    Attempt attempt = Attempt.of(task);
    // The driver sees by the number of tasks if they do not compute a partition each.
    boolean moved = task.partitionId() != partition && task.numPartitions() == partitions;
    return attempt.isAgain() || moved || suspects.contains(partition)
        ? new Decide(key, new Part(attempt, partition), task.taskAttemptId())
        : null;
  }

  /** The rows of a partition, which is reported after the last one. */
  public Iterator<InternalRow> delivered(Iterator<InternalRow> rows, int partition) {
    return new AtEnd(rows, () -> through.add(partition));
  }
}
