package io.holdfast.spark.store;

import io.holdfast.spark.executor.ManagerTotals;
import io.holdfast.spark.merged.WriterStats;
import io.holdfast.spark.minor.SparkCalls;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToLongFunction;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSizeMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSumMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomTimingMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;

/** Metrics of stores, as the progress of a query and the SQL tab of Spark's UI show them. */
public final class StoreMetrics {
  /**
   * The work of one session, from the opening of its store to its end.
   *
   * @param manager the work of the manager since any of its stores last asked
   */
  private record Counters(TimedStats before, TimedStats now, ManagerTotals manager) {}

  private static final Map<StateStoreCustomMetric, ToLongFunction<Counters>> METRICS =
      new LinkedHashMap<>();

  static {
    sum("holdfastLoads", "versions read from physical files", of(StoreStats::loads));
    sum("holdfastRewinds", "versions served by undoing a commit", of(StoreStats::rewinds));
    size(
        "holdfastWrittenBytes",
        "bytes that commits wrote, before compression",
        of(StoreStats::writtenBytes));
    sum("holdfastEmptyCommits", "commits that wrote nothing", of(StoreStats::emptyCommits));
    sum("holdfastRebuilds", "versions rebuilt because a run was damaged", of(StoreStats::rebuilds));
    sum("holdfastChangelogs", "commits that wrote a changelog", of(StoreStats::changelogs));
    sum("holdfastColdReads", "reads of runs for keys not in memory", of(StoreStats::coldReads));
    timing(
        "holdfastLoadMs",
        "time to load versions from physical files",
        of -> of.now().loadMs() - of.before().loadMs());
    timing(
        "holdfastAppendMs",
        "time to write changelogs",
        of -> of.now().appendMs() - of.before().appendMs());
    // These two describe the store itself, not the session.
    sum(
        "holdfastUnmerged",
        "changelogs that are in no run yet",
        of -> of.now().counters().unmerged());
    sum(
        "holdfastRuns",
        "base images and delta runs that stores are made of",
        of -> of.now().counters().runs());
    sum("holdfastFilesCreated", "physical files created", written(WriterStats::filesCreated));
    sum(
        "holdfastFilesSealed",
        "physical files closed with a footer",
        written(WriterStats::filesSealed));
    sum("holdfastSegments", "segments written, runs included", written(WriterStats::segments));
    size(
        "holdfastStoredBytes",
        "bytes of these segments in physical files",
        written(WriterStats::storedBytes));
    timing(
        "holdfastSealMs",
        "time to make physical files durable for the batch before",
        of -> of.manager().sealMs());
    size(
        "holdfastPinnedBytes",
        "bytes in physical files that no retained batch needs any more",
        of -> of.manager().pinnedBytes());
  }

  public static final String PARKED_PARTITIONS = "holdfastParkedPartitions";
  public static final String PARKED_ROWS = "holdfastParkedRows";
  public static final String PARKED_BYTES = "holdfastParkedBytes";

  public static final String PARKED_SINCE = "holdfastParkedSince";

  /** Metrics that no store reports, see {@code io.holdfast.spark.isolation}. */
  private static final List<StateStoreCustomMetric> OF_PARKED =
      List.of(
          new StateStoreCustomSumMetric(PARKED_PARTITIONS, "Holdfast: parked partitions"),
          new StateStoreCustomSumMetric(PARKED_ROWS, "Holdfast: pending rows"),
          size(PARKED_BYTES, "Holdfast: bytes of pending rows"),
          new StateStoreCustomSumMetric(
              PARKED_SINCE, "Holdfast: batch of the oldest pending rows"));

  private StoreMetrics() {}

  public static List<StateStoreCustomMetric> all(boolean parked) {
    List<StateStoreCustomMetric> all = new ArrayList<>(METRICS.keySet());
    if (parked) {
      all.addAll(OF_PARKED);
    }
    return all;
  }

  private static void sum(String name, String description, ToLongFunction<Counters> value) {
    METRICS.put(new StateStoreCustomSumMetric(name, "Holdfast: " + description), value);
  }

  private static void size(String name, String description, ToLongFunction<Counters> value) {
    METRICS.put(size(name, "Holdfast: " + description), value);
  }

  private static StateStoreCustomMetric size(String name, String text) {
    // 4.3 asks whether the metric is of a snapshot.
    return new StateStoreCustomSizeMetric(name, text, false); // from-4.3
    // until-4.2: return new StateStoreCustomSizeMetric(name, text);
  }

  private static void timing(String name, String description, ToLongFunction<Counters> value) {
    METRICS.put(new StateStoreCustomTimingMetric(name, "Holdfast: " + description), value);
  }

  private static ToLongFunction<Counters> written(ToLongFunction<WriterStats> counter) {
    return of -> counter.applyAsLong(of.manager().written());
  }

  /** The growth in the session. */
  private static ToLongFunction<Counters> of(ToLongFunction<StoreStats> counter) {
    return of ->
        counter.applyAsLong(of.now().counters()) - counter.applyAsLong(of.before().counters());
  }

  static StateStoreMetrics of(TimedStats before, TimedStats now, ManagerTotals totals) {
    Counters counters = new Counters(before, now, totals);
    Map<StateStoreCustomMetric, Object> custom = new HashMap<>();
    METRICS.forEach((metric, value) -> custom.put(metric, value.applyAsLong(counters)));
    return SparkCalls.metrics(now.counters().keys(), now.counters().memoryBytes(), custom);
  }
}
