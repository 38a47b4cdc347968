package io.holdfast.spark.ui;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.DeserializationFeature;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.PropertyNamingStrategies;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.List;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.util.kvstore.KVIndex;

/**
 * Events that the driver posts to the application's listeners, in addition to Spark's progress of
 * queries. The event log has them as JSON, by the names of classes and components. A History Server
 * without this jar skips them.
 */
public final class UiEvents {
  /** Bounds: failed regions of an attempt with a name, and characters of their texts. */
  static final int MAX_FAILED = 10;

  static final int MAX_REGION = 100;
  static final int MAX_CAUSE = 300;

  private UiEvents() {}

  /**
   * A clean-up of a query's files has ended.
   *
   * @param batch the last batch before it
   * @param files that remain, with files that are written to; {@code bytes} is their size
   * @param closedBytes of the closed files
   * @param pinnedBytes of the closed files that no retained batch needs
   */
  public record FilesCounted(
      String queryId,
      long batch,
      long files,
      long bytes,
      long closedBytes,
      long pinnedBytes,
      long atMs)
      implements SparkListenerEvent {
    static final String PINNED = "Bytes of the closed files that no retained batch needs";
    static final String LIVE = "Share of the closed files' bytes that a retained batch needs";

    double liveShare() {
      return closedBytes == 0 ? 1 : neededBytes() / (double) closedBytes;
    }

    /** Empty without closed files. */
    String live() {
      return closedBytes == 0 ? "" : Html.percent(liveShare());
    }

    /** Bytes of closed files that a retained batch needs. */
    long neededBytes() {
      return Math.max(0, closedBytes - pinnedBytes);
    }
  }

  /** A regional pipeline with its segments in a folder has begun; each start has another run. */
  public record PipelineOpened(String run, String pipeline, String folder, long atMs)
      implements SparkListenerEvent {}

  public record PipelineClosed(String run, long atMs) implements SparkListenerEvent {}

  /**
   * The origin is the checkpoint with the region's state; null if the attempt completed none, or
   * the region has no state yet.
   */
  public record FailedRegion(String region, Long origin, String cause) {
    public FailedRegion {
      region = cut(region, MAX_REGION);
      cause = cut(cause, MAX_CAUSE);
    }
  }

  /**
   * An attempt at a checkpoint of a regional pipeline has ended. The tab keeps this event as a row.
   *
   * @param cause of an aborted attempt; else empty
   * @param failed the first regions that failed
   * @param unnamedFailed the number of other regions that failed
   */
  @JsonIgnoreProperties(ignoreUnknown = true)
  public record AttemptEnded(
      String run,
      long id,
      long batch,
      String kind,
      String outcome,
      long startedMs,
      long endedMs,
      long inFlightRows,
      String cause,
      List<FailedRegion> failed,
      long unnamedFailed)
      implements SparkListenerEvent, Row {
    private static final ObjectMapper HISTORY =
        new ObjectMapper()
            .configure(DeserializationFeature.FAIL_ON_UNKNOWN_PROPERTIES, false)
            .setPropertyNamingStrategy(PropertyNamingStrategies.SNAKE_CASE);

    public AttemptEnded {
      outcome = outcome == null ? "" : outcome;
      cause = cut(cause, MAX_CAUSE);
      List<FailedRegion> all = failed == null ? List.of() : failed;
      failed = List.copyOf(all.subList(0, Math.min(MAX_FAILED, all.size())));
      unnamedFailed += all.size() - failed.size();
    }

    @Override
    @KVIndex
    public String key() {
      return Row.keyOf(run, id);
    }

    long ms() {
      return Math.max(0, endedMs - startedMs);
    }

    long failures() {
      return failed.size() + unnamedFailed;
    }

    /**
     * Reads an attempt of the history of a pipeline.
     *
     * @param run of the event, instead of the run in the history
     * @param line as in its pages, see "History of attempts" in rust/core/FORMAT.md
     * @throws IllegalArgumentException if it is no such line
     */
    public static AttemptEnded of(String run, String line) {
      try {
        ObjectNode json = HISTORY.readValue(line, ObjectNode.class).put("run", run);
        // Spark's events name their class in this property.
        json.put("Event", AttemptEnded.class.getName());
        return HISTORY.treeToValue(json, AttemptEnded.class);
      } catch (JsonProcessingException e) {
        throw new IllegalArgumentException("No line of a history: " + cut(line, MAX_CAUSE), e);
      }
    }
  }

  /** A text of at most so many characters; empty for null. */
  static String cut(String text, int most) {
    if (text == null) {
      return "";
    }
    return text.length() <= most ? text : text.substring(0, most - 1) + "…";
  }
}
