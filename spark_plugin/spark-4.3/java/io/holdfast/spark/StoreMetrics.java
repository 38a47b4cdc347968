package io.holdfast.spark;

import java.util.HashMap;
import java.util.Map;
import java.util.stream.Stream;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSizeMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSumMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomTimingMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreInstanceMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** Metrics of stores, as the progress of a query and the SQL tab of Spark's UI show them. */
final class StoreMetrics {
  /** Of one store, in the order of {@link TableHandle#stats} from its third number. */
  private static final StateStoreCustomMetric[] OF_STORE = {
    sum("holdfastLoads", "Holdfast: versions read from state files"),
    sum("holdfastRewinds", "Holdfast: versions served by undoing a commit"),
    size("holdfastWrittenBytes", "Holdfast: bytes that commits wrote, before compression"),
    sum("holdfastEmptyCommits", "Holdfast: commits that wrote nothing"),
    sum("holdfastRebuilds", "Holdfast: versions rebuilt because a base image was damaged"),
    sum("holdfastChangelogs", "Holdfast: commits that wrote a changelog"),
    timing("holdfastLoadMs", "Holdfast: time to load versions from state files"),
    timing("holdfastAppendMs", "Holdfast: time to write changelogs"),
  };

  /** Of its manager, in the order of {@link HoldfastExecutor.Lease#takeTotals}. */
  private static final StateStoreCustomMetric[] OF_MANAGER = {
    sum("holdfastFilesCreated", "Holdfast: state files created"),
    sum("holdfastFilesSealed", "Holdfast: state files closed with a footer"),
    sum("holdfastSegments", "Holdfast: segments written, base images included"),
    size("holdfastStoredBytes", "Holdfast: bytes of these segments in state files"),
    timing("holdfastSealMs", "Holdfast: time to make state files durable for the batch before"),
    size("holdfastPinnedBytes", "Holdfast: bytes in state files that no retained batch needs any more"),
  };

  static final StateStoreCustomMetric[] ALL =
      Stream.of(OF_STORE, OF_MANAGER).flatMap(Stream::of).toArray(StateStoreCustomMetric[]::new);

  /** Totals of a manager that did nothing. */
  static final long[] NOTHING = new long[OF_MANAGER.length];

  private StoreMetrics() {}

  private static StateStoreCustomMetric sum(String name, String description) {
    return new StateStoreCustomSumMetric(name, description);
  }

  private static StateStoreCustomMetric size(String name, String description) {
    return new StateStoreCustomSizeMetric(name, description, false);
  }

  private static StateStoreCustomMetric timing(String name, String description) {
    return new StateStoreCustomTimingMetric(name, description);
  }

  /**
   * Metrics of one session.
   *
   * @param before counters when the session's store was opened
   * @param now counters at its end
   * @param totals what the manager did since any store last asked
   */
  static StateStoreMetrics of(long[] before, long[] now, long[] totals) {
    Map<StateStoreCustomMetric, Object> custom = new HashMap<>();
    for (int i = 0; i < OF_STORE.length; i++) {
      custom.put(OF_STORE[i], now[i + 2] - before[i + 2]);
    }
    for (int i = 0; i < OF_MANAGER.length; i++) {
      custom.put(OF_MANAGER[i], totals[i]);
    }
    return new StateStoreMetrics(
        now[0],
        now[1],
        scala.collection.immutable.Map.from(CollectionConverters.asScala(custom)),
        Map$.MODULE$.<StateStoreInstanceMetric, Object>empty());
  }
}
