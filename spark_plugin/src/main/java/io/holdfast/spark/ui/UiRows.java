package io.holdfast.spark.ui;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import io.holdfast.spark.ui.UiEvents.FilesCounted;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import org.apache.spark.util.kvstore.KVIndex;

/**
 * The rows of the tab in Spark's store of the UI. The History Server may keep that store on disk,
 * as JSON by the names of components, so rows of other versions have to be readable.
 */
public final class UiRows {
  private UiRows() {}

  public enum Kind {
    QUERY,
    PIPELINE
  }

  /**
   * One start of a query with state in Holdfast, or of a regional pipeline.
   *
   * @param name of the query or the pipeline; the id of a query that has no name
   * @param place the id of a query, or the folder of a pipeline's segments
   * @param endedMs 0 while it runs
   * @param failure why it failed; empty otherwise
   */
  @JsonIgnoreProperties(ignoreUnknown = true)
  public record Start(
      String run,
      Kind kind,
      String name,
      String place,
      long startedMs,
      long endedMs,
      String failure) {
    public Start {
      failure = failure == null ? "" : failure;
    }

    @KVIndex
    public String key() {
      return run;
    }

    String state() {
      if (endedMs == 0) {
        return "running";
      }
      return failure.isEmpty() ? "ended" : "failed";
    }

    /** The head of its page: the failure, the state, and further {@link Html#fact}s. */
    String head(String facts) {
      String wrong =
          failure.isEmpty() ? "" : "<p class=\"hf-wrong\">" + Html.text(failure) + "</p>";
      String state = Html.fact("state", state(), "started " + Html.time(startedMs));
      return wrong + "<dl class=\"hf-facts\">" + state + facts + "</dl>";
    }

    Start ended(long atMs, String why) {
      return new Start(run, kind, name, place, startedMs, atMs, why);
    }
  }

  /** A batch of a query, with its {@link Figures}, summed over operators. */
  @JsonIgnoreProperties(ignoreUnknown = true)
  public record Batch(String run, long batch, long endedMs, Map<String, Long> figures)
      implements Row {
    public Batch {
      figures = figures == null ? Map.of() : figures;
    }

    @Override
    @KVIndex
    public String key() {
      return Row.keyOf(run, batch);
    }

    long get(String figure) {
      return figures.getOrDefault(figure, 0L);
    }
  }

  @JsonIgnoreProperties(ignoreUnknown = true)
  public record Files(String run, FilesCounted counted) implements Row {
    @Override
    @KVIndex
    public String key() {
      return Row.keyOf(run, counted.batch());
    }
  }

  static <R> List<R> reversed(List<R> rows) {
    List<R> turned = new ArrayList<>(rows);
    Collections.reverse(turned);
    return turned;
  }
}
