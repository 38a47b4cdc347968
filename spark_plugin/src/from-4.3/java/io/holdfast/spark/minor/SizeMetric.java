package io.holdfast.spark.minor;

import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomSizeMetric;

/** Spark's metric of a size in bytes: 4.3 asks whether it is of a snapshot. */
public final class SizeMetric {
  private SizeMetric() {}

  public static StateStoreCustomMetric of(String name, String description) {
    return new StateStoreCustomSizeMetric(name, description, false);
  }
}
