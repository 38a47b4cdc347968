package io.holdfast.spark;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.LongSupplier;

/** What this executor's stores and managers did so far, for Spark's metrics system. */
final class ExecutorTotals {
  final LongAdder loadNanos = new LongAdder();
  final LongAdder appendNanos = new LongAdder();
  final LongAdder sealNanos = new LongAdder();
  final LongAdder filesCreated = new LongAdder();
  final LongAdder filesSealed = new LongAdder();
  final LongAdder segments = new LongAdder();
  final LongAdder storedBytes = new LongAdder();

  /** Spark names them {@code plugin.io.holdfast.spark.HoldfastPlugin.<name>}. */
  void register(MetricRegistry registry, LongSupplier memoryBytes) {
    gauge(registry, "memoryBytes", memoryBytes);
    gauge(registry, "filesCreated", filesCreated::sum);
    gauge(registry, "filesSealed", filesSealed::sum);
    gauge(registry, "segments", segments::sum);
    gauge(registry, "storedBytes", storedBytes::sum);
    gauge(registry, "appendMs", () -> appendNanos.sum() / 1_000_000);
    gauge(registry, "sealMs", () -> sealNanos.sum() / 1_000_000);
    gauge(registry, "loadMs", () -> loadNanos.sum() / 1_000_000);
  }

  static void gauge(MetricRegistry registry, String name, LongSupplier value) {
    registry.register(name, (Gauge<Long>) value::getAsLong);
  }
}
