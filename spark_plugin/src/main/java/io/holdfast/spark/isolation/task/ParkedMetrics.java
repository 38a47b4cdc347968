package io.holdfast.spark.isolation.task;

import io.holdfast.spark.store.NativeStore;
import io.holdfast.spark.store.NativeStore.Pending;
import io.holdfast.spark.store.StoreMetrics;
import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.metric.SQLMetrics;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import scala.Option;

/** Metrics of an operator about parked partitions. The keys are of all partitions. */
public record ParkedMetrics(SQLMetric keys, SQLMetric partitions, SQLMetric rows, SQLMetric bytes)
    implements Serializable {
  public static ParkedMetrics of(StateStoreWriter operator) {
    return new ParkedMetrics(
        metric(operator, "numTotalStateRows"),
        metric(operator, StoreMetrics.PARKED_PARTITIONS),
        metric(operator, StoreMetrics.PARKED_ROWS),
        metric(operator, StoreMetrics.PARKED_BYTES));
  }

  public static SQLMetric metric(StateStoreWriter operator, String name) {
    Option<SQLMetric> shown = operator.metrics().get(name);
    return shown.isDefined()
        ? shown.get()
        : SQLMetrics.createMetric(((SparkPlan) operator).sparkContext(), name);
  }

  /** Adds the input that waits already at version {@code base}, if any; returns its bytes. */
  long waiting(NativeStore store, String base) {
    long found = 0;
    for (Pending pending : base == null ? List.<Pending>of() : store.pending(base)) {
      rows.add(pending.rows());
      found += pending.bytes();
    }
    bytes.add(found);
    return found;
  }

  /** Adds the keys of a parked store. {@code base} is the id of its content, or null. */
  void reportKeys(String name, NativeStore store, String id, String base) {
    long count = store.knownKeys(base);
    store.noteKeys(id, count);
    // Spark counts a row of a join only once, too.
    if (!name.endsWith("-keyToNumValues")) {
      keys.add(count);
    }
  }
}
