package io.holdfast.spark;

import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSizeMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSumMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreInstanceMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** Metrics of one store, in the order of {@link Native#storeStats}. */
final class StoreMetrics {
  private static final StateStoreCustomMetric LOADS =
      new StateStoreCustomSumMetric("holdfastLoads", "versions read from state files");
  private static final StateStoreCustomMetric REWINDS =
      new StateStoreCustomSumMetric("holdfastRewinds", "versions served by undoing a commit");
  private static final StateStoreCustomMetric WRITTEN_BYTES =
      new StateStoreCustomSizeMetric(
          "holdfastWrittenBytes", "bytes that commits wrote, before compression", false);
  private static final StateStoreCustomMetric EMPTY_COMMITS =
      new StateStoreCustomSumMetric("holdfastEmptyCommits", "commits that wrote nothing");
  private static final StateStoreCustomMetric REBUILDS =
      new StateStoreCustomSumMetric(
          "holdfastRebuilds", "versions rebuilt because a base image was damaged");

  static final StateStoreCustomMetric[] ALL = {
    LOADS, REWINDS, WRITTEN_BYTES, EMPTY_COMMITS, REBUILDS
  };

  private StoreMetrics() {}

  /**
   * Metrics of one session.
   *
   * @param before counters when the session's store was opened
   * @param now counters at its end
   */
  static StateStoreMetrics of(long[] before, long[] now) {
    Map<StateStoreCustomMetric, Object> custom = new HashMap<>();
    for (int i = 0; i < ALL.length; i++) {
      custom.put(ALL[i], now[i + 2] - before[i + 2]);
    }
    return new StateStoreMetrics(
        now[0],
        now[1],
        scala.collection.immutable.Map.from(CollectionConverters.asScala(custom)),
        Map$.MODULE$.<StateStoreInstanceMetric, Object>empty());
  }
}
