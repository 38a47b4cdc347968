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

  /** What names of metrics of Holdfast begin with. */
  private static final String PREFIX = "holdfast";

  private Figures() {}

  /** Whether an operator keeps its state in Holdfast. */
  private static boolean isOfHoldfast(StateOperatorProgress operator) {
    return operator.customMetrics().keySet().stream().anyMatch(name -> name.startsWith(PREFIX));
  }

  /** The figures of a batch, over its operators with state of Holdfast's; empty without any. */
  static Map<String, Long> of(StreamingQueryProgress progress) {
    Map<String, Long> found = new HashMap<>();
    for (StateOperatorProgress operator : progress.stateOperators()) {
      if (isOfHoldfast(operator)) {
        found.merge(KEYS, operator.numRowsTotal(), Long::sum);
        found.merge(MEMORY_BYTES, operator.memoryUsedBytes(), Long::sum);
        // From an event log numbers may be of another class than Spark declares.
        Map<String, ? extends Number> custom = operator.customMetrics();
        custom.forEach(
            (name, value) -> {
              if (name.startsWith(PREFIX)) {
                found.merge(name, value.longValue(), Long::sum);
              }
            });
      }
    }
    if (!found.isEmpty()) {
      found.put(INPUT_ROWS, progress.numInputRows());
      Number took = progress.durationMs().get("triggerExecution");
      found.put(BATCH_MS, took == null ? 0 : took.longValue());
    }
    return found;
  }

  /** Runs that were written in a batch: segments that are no changelogs. */
  static long runsWritten(Batch batch) {
    return Math.max(0, batch.get("holdfastSegments") - batch.get("holdfastChangelogs"));
  }
}
