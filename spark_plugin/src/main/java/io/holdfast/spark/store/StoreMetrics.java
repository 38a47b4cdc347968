package io.holdfast.spark.store;

import io.holdfast.spark.executor.ManagerTotals;
import io.holdfast.spark.minor.SizeMetric;
import io.holdfast.spark.minor.SparkCalls;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.ToLongFunction;
import java.util.stream.Stream;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSumMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomTimingMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;

/** Metrics of stores, as the progress of a query and the SQL tab of Spark's UI show them. */
public final class StoreMetrics {
  /** A metric of one store, and where it is in the store's counters. */
  private record OfStore(StateStoreCustomMetric metric, ToLongFunction<TimedStats> value) {}

  /** A metric of its manager. */
  private record OfManager(StateStoreCustomMetric metric, ToLongFunction<ManagerTotals> value) {}

  private static final List<OfStore> OF_STORE =
      List.of(
          new OfStore(
              sum("holdfastLoads", "Holdfast: versions read from physical files"),
              stats -> stats.counters().loads()),
          new OfStore(
              sum("holdfastRewinds", "Holdfast: versions served by undoing a commit"),
              stats -> stats.counters().rewinds()),
          new OfStore(
              size("holdfastWrittenBytes", "Holdfast: bytes that commits wrote, before compression"),
              stats -> stats.counters().writtenBytes()),
          new OfStore(
              sum("holdfastEmptyCommits", "Holdfast: commits that wrote nothing"),
              stats -> stats.counters().emptyCommits()),
          new OfStore(
              sum("holdfastRebuilds", "Holdfast: versions rebuilt because a run was damaged"),
              stats -> stats.counters().rebuilds()),
          new OfStore(
              sum("holdfastChangelogs", "Holdfast: commits that wrote a changelog"),
              stats -> stats.counters().changelogs()),
          new OfStore(
              sum("holdfastColdReads", "Holdfast: reads of runs for keys not in memory"),
              stats -> stats.counters().coldReads()),
          new OfStore(
              timing("holdfastLoadMs", "Holdfast: time to load versions from physical files"),
              TimedStats::loadMs),
          new OfStore(
              timing("holdfastAppendMs", "Holdfast: time to write changelogs"),
              TimedStats::appendMs));

  /** Figures of how the store stands, not of what a session did. */
  private static final List<OfStore> AS_IT_STANDS =
      List.of(
          new OfStore(
              sum("holdfastUnmerged", "Holdfast: changelogs that are in no run yet"),
              stats -> stats.counters().unmerged()),
          new OfStore(
              sum("holdfastRuns", "Holdfast: base images and delta runs that stores are made of"),
              stats -> stats.counters().runs()));

  private static final List<OfManager> OF_MANAGER =
      List.of(
          new OfManager(
              sum("holdfastFilesCreated", "Holdfast: physical files created"),
              totals -> totals.written().filesCreated()),
          new OfManager(
              sum("holdfastFilesSealed", "Holdfast: physical files closed with a footer"),
              totals -> totals.written().filesSealed()),
          new OfManager(
              sum("holdfastSegments", "Holdfast: segments written, runs included"),
              totals -> totals.written().segments()),
          new OfManager(
              size("holdfastStoredBytes", "Holdfast: bytes of these segments in physical files"),
              totals -> totals.written().storedBytes()),
          new OfManager(
              timing(
                  "holdfastSealMs",
                  "Holdfast: time to make physical files durable for the batch before"),
              ManagerTotals::sealMs),
          new OfManager(
              size(
                  "holdfastPinnedBytes",
                  "Holdfast: bytes in physical files that no retained batch needs any more"),
              ManagerTotals::pinnedBytes));

  public static final StateStoreCustomMetric[] ALL =
      Stream.of(
              OF_STORE.stream().map(OfStore::metric),
              AS_IT_STANDS.stream().map(OfStore::metric),
              OF_MANAGER.stream().map(OfManager::metric))
          .flatMap(metrics -> metrics)
          .toArray(StateStoreCustomMetric[]::new);

  private StoreMetrics() {}

  private static StateStoreCustomMetric sum(String name, String description) {
    return new StateStoreCustomSumMetric(name, description);
  }

  private static StateStoreCustomMetric size(String name, String description) {
    return SizeMetric.of(name, description);
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
  static StateStoreMetrics of(TimedStats before, TimedStats now, ManagerTotals totals) {
    Map<StateStoreCustomMetric, Object> custom = new HashMap<>();
    for (OfStore of : OF_STORE) {
      custom.put(of.metric(), of.value().applyAsLong(now) - of.value().applyAsLong(before));
    }
    for (OfStore of : AS_IT_STANDS) {
      custom.put(of.metric(), of.value().applyAsLong(now));
    }
    for (OfManager of : OF_MANAGER) {
      custom.put(of.metric(), of.value().applyAsLong(totals));
    }
    return SparkCalls.metrics(now.counters().keys(), now.counters().memoryBytes(), custom);
  }
}
