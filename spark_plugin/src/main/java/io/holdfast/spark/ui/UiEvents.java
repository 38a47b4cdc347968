package io.holdfast.spark.ui;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.scheduler.SparkListenerEvent;

/**
 * What the driver tells the listeners of the application, beside the progress of queries that Spark
 * tells them itself. Spark writes these to the event log as JSON, by the names of their classes and
 * components: a History Server without this jar steps over them.
 */
public final class UiEvents {
  /** Of one attempt so many failed regions are told by name, with texts no longer than these. */
  static final int MAX_FAILED = 10;

  static final int MAX_REGION = 100;
  static final int MAX_CAUSE = 300;

  private UiEvents() {}

  /**
   * A clean-up of a query's files has ended.
   *
   * @param batch after which it came
   * @param files that are left, those that are written to included
   * @param bytes of these
   * @param closedBytes of those that are closed
   * @param pinnedBytes how many of these no retained batch needs
   */
  public record FilesCounted(
      String queryId,
      long batch,
      long files,
      long bytes,
      long closedBytes,
      long pinnedBytes,
      long atMs)
      implements SparkListenerEvent {}

  /**
   * A regional pipeline has begun.
   *
   * @param run another one for each start in the application
   * @param folder of its segments
   */
  public record PipelineOpened(String run, String pipeline, String folder, long atMs)
      implements SparkListenerEvent {}

  /** A regional pipeline has ended. */
  public record PipelineClosed(String run, long atMs) implements SparkListenerEvent {}

  /**
   * A region that failed in an attempt.
   *
   * @param origin the checkpoint that its state is of; null where the attempt completed none, or the
   *     region has no state yet
   */
  public record FailedRegion(String region, Long origin, String cause) {}

  /**
   * An attempt at a checkpoint of a regional pipeline has ended.
   *
   * @param cause why it was aborted; empty otherwise
   * @param failed the first regions that failed
   * @param unnamedFailed how many others failed
   */
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
      implements SparkListenerEvent {
    /**
     * Reads what the history of a pipeline has of an attempt.
     *
     * @param line as in its pages, see "History of attempts" in rust/core/FORMAT.md
     * @throws IllegalArgumentException if it is no such line
     */
    public static AttemptEnded of(String run, String line) {
      JsonNode json;
      try {
        json = new ObjectMapper().readTree(line);
      } catch (JsonProcessingException e) {
        throw new IllegalArgumentException("No line of a history: " + cut(line, MAX_CAUSE), e);
      }
      List<FailedRegion> failed = new ArrayList<>();
      int all = 0;
      for (JsonNode one : json.path("failed")) {
        if (all++ < MAX_FAILED) {
          JsonNode origin = one.path("origin");
          failed.add(
              new FailedRegion(
                  cut(one.path("region").asText(), MAX_REGION),
                  origin.isNumber() ? (Long) origin.asLong() : null,
                  cut(one.path("cause").asText(), MAX_CAUSE)));
        }
      }
      return new AttemptEnded(
          run,
          json.path("id").asLong(),
          json.path("batch").asLong(),
          json.path("kind").asText(),
          json.path("outcome").asText(),
          json.path("started_ms").asLong(),
          json.path("ended_ms").asLong(),
          json.path("in_flight_rows").asLong(),
          cut(json.path("cause").asText(), MAX_CAUSE),
          List.copyOf(failed),
          json.path("unnamed_failed").asLong() + all - failed.size());
    }
  }

  /** A text of at most so many characters. */
  static String cut(String text, int most) {
    return text.length() <= most ? text : text.substring(0, most - 1) + "…";
  }
}
