package io.holdfast.spark.ui;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import org.apache.spark.util.kvstore.KVIndex;

/**
 * What the tab shows, as it lies in Spark's store of the UI. The History Server may keep that on disk,
 * as JSON by the names of components: what another version of this class wrote has to be readable.
 */
public final class UiRows {
  private UiRows() {}

  /** A row of a start. */
  sealed interface Row permits Batch, Files, Attempt {
    String key();
  }

  /** What a start is of. */
  public enum Kind {
    QUERY,
    PIPELINE
  }

  /**
   * One start of a query with state of Holdfast's, or of a regional pipeline.
   *
   * @param run identifies it
   * @param name of the query or the pipeline; of a query without one its id
   * @param place the id of a query, the folder of a pipeline's segments
   * @param endedMs 0 while it runs
   * @param failure why it ended; empty otherwise
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

    Start ended(long atMs, String why) {
      return new Start(run, kind, name, place, startedMs, atMs, why);
    }
  }

  /**
   * A batch of a query.
   *
   * @param figures the metrics of Holdfast in its progress, summed over operators, and those of {@link
   *     Figures}
   */
  @JsonIgnoreProperties(ignoreUnknown = true)
  public record Batch(String run, long batch, long endedMs, Map<String, Long> figures)
      implements Row {
    public Batch {
      figures = figures == null ? Map.of() : figures;
    }

    @Override
    @KVIndex
    public String key() {
      return keyOf(run, batch);
    }

    long get(String figure) {
      return figures.getOrDefault(figure, 0L);
    }
  }

  /** See {@link UiEvents.FilesCounted}. */
  @JsonIgnoreProperties(ignoreUnknown = true)
  public record Files(
      String run,
      long batch,
      long files,
      long bytes,
      long closedBytes,
      long pinnedBytes,
      long atMs)
      implements Row {
    @Override
    @KVIndex
    public String key() {
      return keyOf(run, batch);
    }

    /** The share of the closed files' bytes that a retained batch needs. */
    double liveShare() {
      return closedBytes == 0 ? 1 : neededBytes() / (double) closedBytes;
    }

    /** Bytes of closed files that a retained batch needs. */
    long neededBytes() {
      return Math.max(0, closedBytes - pinnedBytes);
    }
  }

  /** See {@link UiEvents.AttemptEnded}. */
  @JsonIgnoreProperties(ignoreUnknown = true)
  public record Attempt(
      String run,
      long id,
      long batch,
      String kind,
      String outcome,
      long startedMs,
      long endedMs,
      long inFlightRows,
      String cause,
      List<UiEvents.FailedRegion> failed,
      long unnamedFailed)
      implements Row {
    public Attempt {
      outcome = outcome == null ? "" : outcome;
      cause = cause == null ? "" : cause;
      failed = failed == null ? List.of() : failed;
    }

    @Override
    @KVIndex
    public String key() {
      return keyOf(run, id);
    }

    long ms() {
      return Math.max(0, endedMs - startedMs);
    }

    long failures() {
      return failed.size() + unnamedFailed;
    }
  }

  /** The key of a row of a start: rows of one start lie beside each other, by number. */
  static String keyOf(String run, long number) {
    return String.format(Locale.ROOT, "%s/%019d", run, number);
  }
}
