package io.holdfast.spark.executor;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import io.holdfast.spark.merged.WriterStats;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.LongSupplier;
import java.util.function.Supplier;

/** Counters of this executor's stores and managers, for Spark's metrics system. */
public final class ExecutorTotals {
  public final LongAdder loadNanos = new LongAdder();
  public final LongAdder appendNanos = new LongAdder();
  final LongAdder sealNanos = new LongAdder();

  /**
   * Registers gauges, which Spark names {@code plugin.io.holdfast.spark.HoldfastPlugin.<name>}.
   *
   * @param written sums over all managers, read with the gauge: no task reports what maintenance
   *     writes
   */
  void register(
      MetricRegistry registry,
      LongSupplier memoryBytes,
      Supplier<WriterStats> written,
      Supplier<LocalCache.Totals> cached) {
    gauge(registry, "memoryBytes", memoryBytes);
    gauge(registry, "cacheBytes", () -> cached.get().bytes());
    gauge(registry, "cacheHits", () -> cached.get().hits());
    gauge(registry, "cacheMisses", () -> cached.get().misses());
    gauge(registry, "filesCreated", () -> written.get().filesCreated());
    gauge(registry, "filesSealed", () -> written.get().filesSealed());
    gauge(registry, "segments", () -> written.get().segments());
    gauge(registry, "storedBytes", () -> written.get().storedBytes());
    gauge(registry, "appendMs", () -> appendNanos.sum() / 1_000_000);
    gauge(registry, "sealMs", () -> sealNanos.sum() / 1_000_000);
    gauge(registry, "loadMs", () -> loadNanos.sum() / 1_000_000);
  }

  private static void gauge(MetricRegistry registry, String name, LongSupplier value) {
    registry.register(name, (Gauge<Long>) value::getAsLong);
  }
}
