package io.holdfast.spark.isolation.driver;

import io.holdfast.spark.isolation.task.TaskSide;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.LongUnaryOperator;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOpStateStoreCheckpointInfo;
import org.apache.spark.util.CollectionAccumulator;

/** A guarded stage in one batch, as Spark sees it: its RDDs, its metric, its tasks' reports. */
public final class SparkSide {
  final GuardKey key;

  /** Partitions that tasks delivered or parked to the end, if Spark took the tasks' results. */
  private final CollectionAccumulator<Integer> through;

  /** Tasks of these partitions ask before they begin. Spark's stage carries the partitions. */
  private final Set<Integer> suspects = Collections.synchronizedSet(new HashSet<>());

  /** Commits of tasks whose result Spark took. */
  private final List<CollectionAccumulator<StatefulOpStateStoreCheckpointInfo>> commits =
      new CopyOnWriteArrayList<>();

  /** A stage of Spark that computes one of these RDDs of the guard is guarded. */
  private final Set<Integer> rdds = ConcurrentHashMap.newKeySet();

  /** By rows that a task read, about so many rows of the whole batch. */
  private volatile LongUnaryOperator input = read -> read;

  /** The oldest batch with pending rows after this one; 0 without one. */
  private long oldest;

  private SQLMetric since;

  SparkSide(GuardKey key, SparkContext spark) {
    this.key = key;
    through = spark.collectionAccumulator();
  }

  Set<Integer> suspects() {
    return suspects;
  }

  public TaskSide ofTasks(int partitions) {
    return new TaskSide(key, partitions, suspects, through);
  }

  /** An RDD guards the operator that has these commits and this metric. */
  public synchronized void guards(
      int rdd,
      CollectionAccumulator<StatefulOpStateStoreCheckpointInfo> infos,
      SQLMetric parkedSince) {
    commits.add(infos);
    rdds.add(rdd);
    since = parkedSince;
    since.set(oldest);
  }

  /** An RDD guards a stage behind a source. The estimate is of all rows of the batch. */
  public void guards(int rdd, LongUnaryOperator estimate) {
    rdds.add(rdd);
    input = estimate;
  }

  /** Partitions that tasks have read to the end. */
  public int throughCount() {
    return (int) through.value().stream().distinct().count();
  }

  long input(long read) {
    return input.applyAsLong(read);
  }

  boolean isGuardedBy(int rdd) {
    return rdds.contains(rdd);
  }

  synchronized void show(long batch) {
    oldest = batch;
    if (since != null) {
      since.set(oldest);
    }
  }

  /** Parked partitions, and partitions that tasks asked for, if tasks are through with them. */
  List<Integer> suspectsThrough() {
    return suspects.isEmpty()
        ? List.of()
        : through.value().stream().filter(suspects::contains).distinct().toList();
  }

  /** Removes a partition's commits by tasks that stopped early: Spark names the first commit. */
  void forgetCommits(int partition) {
    for (CollectionAccumulator<StatefulOpStateStoreCheckpointInfo> infos : commits) {
      // The accumulator's own lock, so that no task reports in between.
      synchronized (infos) {
        List<StatefulOpStateStoreCheckpointInfo> all = infos.value();
        infos.reset();
        all.stream().filter(info -> info.partitionId() != partition).forEach(infos::add);
      }
    }
  }
}
