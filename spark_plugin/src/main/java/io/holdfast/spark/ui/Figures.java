package io.holdfast.spark.ui;

import io.holdfast.spark.ui.UiRows.Batch;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.sql.streaming.StateOperatorProgress;
import org.apache.spark.sql.streaming.StreamingQueryProgress;

/** The figures of a batch, by name. */
final class Figures {
  static final String INPUT_ROWS = "inputRows";
  static final String BATCH_MS = "batchMs";
  static final String KEYS = "keys";
  static final String MEMORY_BYTES = "memoryBytes";
  static final String BAD_ROWS = "badRows";
  private static final String PREFIX = "holdfast"; // of Holdfast's metrics

  private Figures() {}

  /**
   * Sums figures over the operators with state in Holdfast, and over sources whose bad rows are set
   * aside; empty without both.
   */
  static Map<String, Long> of(StreamingQueryProgress progress) {
    Map<String, Long> found = new HashMap<>();
    for (StateOperatorProgress operator : progress.stateOperators()) {
      if (operator.customMetrics().keySet().stream().anyMatch(name -> name.startsWith(PREFIX))) {
        found.merge(KEYS, operator.numRowsTotal(), Long::sum);
        found.merge(MEMORY_BYTES, operator.memoryUsedBytes(), Long::sum);
        // Numbers from an event log may have another class than Spark declares.
        Map<String, ? extends Number> custom = operator.customMetrics();
        custom.forEach(
            (name, value) -> {
              if (name.startsWith(PREFIX)) {
                found.merge(name, value.longValue(), Long::sum);
              }
            });
      }
    }
    progress
        .observedMetrics()
        .forEach(
            (name, row) -> {
              if (name.startsWith(PREFIX + "_bad_rows_")) {
                found.merge(BAD_ROWS, ((Number) row.get(0)).longValue(), Long::sum);
              }
            });
    if (!found.isEmpty()) {
      found.put(INPUT_ROWS, progress.numInputRows());
      Number took = progress.durationMs().get("triggerExecution");
      found.put(BATCH_MS, took == null ? 0 : took.longValue());
    }
    return found;
  }

  /** Runs written in a batch: the segments that are no changelogs. */
  static long runsWritten(Batch batch) {
    return Math.max(0, batch.get("holdfastSegments") - batch.get("holdfastChangelogs"));
  }
}
