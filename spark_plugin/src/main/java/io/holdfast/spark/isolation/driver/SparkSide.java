package io.holdfast.spark.isolation.driver;

import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import java.util.Collections;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CopyOnWriteArrayList;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOpStateStoreCheckpointInfo;
import org.apache.spark.util.CollectionAccumulator;

/** A guarded operator in one batch, as Spark sees it: its RDDs, its metric, reports of its tasks. */
public final class SparkSide {
  final GuardKey key;

  /** Receives the partitions that tasks, whose result Spark took, delivered or parked to the end. */
  private final CollectionAccumulator<Integer> through;

  /** Partitions whose tasks ask before they begin. They travel with the stage. */
  private final Set<Integer> suspects = Collections.synchronizedSet(new HashSet<>());

  /** Receive the commits of tasks whose result Spark took. */
  private final List<CollectionAccumulator<StatefulOpStateStoreCheckpointInfo>> commits =
      new CopyOnWriteArrayList<>();

  /** The RDDs of the guard. A stage that computes one of them is guarded. */
  private final Set<Integer> rdds = ConcurrentHashMap.newKeySet();

  /** The oldest batch whose input is pending after this one; 0 without one. */
  private long oldest;

  private SQLMetric since;

  SparkSide(GuardKey key, SparkContext spark) {
    this.key = key;
    through = spark.collectionAccumulator();
  }

  public Set<Integer> suspects() {
    return suspects;
  }

  public CollectionAccumulator<Integer> through() {
    return through;
  }

  /** An RDD guards the operator, whose commits and metric these are. */
  public synchronized void guards(
      int rdd,
      CollectionAccumulator<StatefulOpStateStoreCheckpointInfo> infos,
      SQLMetric parkedSince) {
    commits.add(infos);
    rdds.add(rdd);
    since = parkedSince;
    since.set(oldest);
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

  /** Those of the partitions that tasks asked for, or that are parked, which tasks are through with. */
  List<Integer> suspectsThrough() {
    return suspects.isEmpty()
        ? List.of()
        : through.value().stream().filter(suspects::contains).distinct().toList();
  }

  /** Takes back the commits of a partition by tasks that stopped early: Spark names the first one. */
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
