package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.ExecutorLink;
import java.time.Instant;
import java.time.temporal.ChronoUnit;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

/**
 * The terms of managers. The driver gives each term once, and above all terms in the folder. The
 * core decides its steps. Markers tell applications apart, so that no batch has to list the files.
 */
public final class Terms {
  /** The executor of a term, unless it is known to be gone. */
  public record Writer(String executorId, ExecutorLink link) {
    @Override
    public String toString() {
      return "executor " + executorId;
    }
  }

  /** In the order of rust/jni/src/driver.rs. */
  private enum Step {
    LOOK,
    MARK,
    KEEP,
    GIVE
  }

  private static final long UNKNOWN = -1;

  /** The term of a manager that needs none. */
  private static final long ANY = Long.MAX_VALUE;

  private static final class Folder {
    /** Writers that may still append, by terms of this application. */
    final Map<Long, Writer> live = new HashMap<>();

    /** Terms whose executors were lost since the last call of {@link #takeGone}. */
    Set<Long> gone = new HashSet<>();

    /** All terms that this application used, also for markers. */
    final TreeSet<Long> own = new TreeSet<>();

    /**
     * The newest term of another application when the first executor of a run asked. A newer one
     * ends the run. The newest term of this application is no measure: while it has no file, it
     * would hide another application that took over below it.
     */
    long older;

    /** A query of this application has started here. Otherwise it only reads the state. */
    boolean runs;

    /** The run has looked at the folder. */
    boolean looked;

    /** The newest marker of this application that is there; 0 without one. */
    long marker;

    /** The newest term of another application that a clean-up found in this run. */
    long found;

    long newest() {
      return own.isEmpty() ? 0 : own.last();
    }

    long[] own() {
      return array(own);
    }
  }

  private final Map<String, Folder> folders = new HashMap<>();

  private Folder of(String dir) {
    return folders.computeIfAbsent(dir, key -> new Folder());
  }

  synchronized void starting(SegmentFolder where) {
    Folder folder = of(where.name);
    folder.runs = true;
    folder.looked = false;
    folder.found = 0;
  }

  /**
   * Returns a new term if the executor holds none, or if another application has written since:
   * files of the old term do not stop that application.
   */
  synchronized long forRun(SegmentFolder where, long held, Writer writer) {
    long term = step(where, held);
    if (term != held) {
      of(where.name).live.put(term, writer);
    }
    return term;
  }

  /** Takes steps until a manager has its term. */
  private long step(SegmentFolder where, long held) {
    Folder folder = of(where.name);
    while (true) {
      long older = folder.looked ? folder.older : UNKNOWN;
      long[] step =
          Native.nextTerm(older, folder.marker, folder.runs, folder.newest(), held, clock());
      long term = step[1];
      switch (Step.values()[(int) step[0]]) {
        case LOOK -> look(where, folder);
        case MARK -> {
          SegmentFolder markers = where.ofDriver();
          folder.own.add(term);
          Native.markTerm(markers.name, markers.files(), term);
          folder.marker = term;
        }
        case KEEP -> {
          return held;
        }
        case GIVE -> {
          folder.own.add(term);
          return term;
        }
      }
    }
  }

  private static void look(SegmentFolder where, Folder folder) {
    long[] marked = newest(where.ofDriver(), folder);
    folder.marker = marked[1];
    folder.older = Math.max(marked[0], newest(where, folder)[0]);
    folder.looked = true;
  }

  /** Lists a folder: the newest term of other applications, and that of this one. */
  private static long[] newest(SegmentFolder where, Folder folder) {
    return Native.newestTerms(where.name, where.files(), folder.own());
  }

  /**
   * Gives a term above every term in the folder of a pipeline and every term given before. It
   * contains the clock, so no term is given again after all of its files were deleted.
   */
  synchronized long next(SegmentFolder where, Writer writer) {
    Folder folder = of(where.name);
    long last = Math.max(newest(where, folder)[0], folder.newest());
    long term = Math.max(last + 1, clock());
    folder.own.add(term);
    folder.live.put(term, writer);
    return term;
  }

  /** In microseconds: two applications that start at once must not use the same terms. */
  private static long clock() {
    return ChronoUnit.MICROS.between(Instant.EPOCH, Instant.now());
  }

  /** The newest term that this application used for a folder; 0 without one. */
  public synchronized long newest(String dir) {
    return of(dir).newest();
  }

  /**
   * Fails if another application has taken {@code where} over since the run began: it restarted the
   * query, and this run must not commit any more.
   */
  synchronized void requireNewest(SegmentFolder where) {
    Folder folder = of(where.name);
    folder.runs = true;
    step(where, ANY);
    long found = Math.max(folder.found, newest(where.ofDriver(), folder)[0]);
    if (found > folder.older) {
      throw new HoldfastException(
          String.format(
              "Another query took over this checkpoint: %s has files of term %x, which this application"
                  + " did not give. The batch was not committed and nothing is lost, but this query"
                  + " must be stopped: only one query may use a checkpoint.",
              where.name, found));
    }
  }

  /**
   * Ends the run if files of another application are in {@code where}. An older Holdfast makes no
   * marker.
   */
  synchronized void lookForOthers(SegmentFolder where) {
    Folder folder = of(where.name);
    folder.found = newest(where, folder)[0];
  }

  record Given(Map<Long, Writer> writers, long[] own, long older) {}

  synchronized Given given(String dir) {
    return new Given(writers(dir), of(dir).own(), of(dir).older);
  }

  public synchronized Map<Long, Writer> writers(String dir) {
    return Map.copyOf(of(dir).live);
  }

  /** Terms of the writers of a folder, in order. */
  public synchronized long[] live(String dir) {
    return array(new TreeSet<>(of(dir).live.keySet()));
  }

  private static long[] array(Set<Long> terms) {
    return terms.stream().mapToLong(Long::longValue).toArray();
  }

  /** The writer of a term; null if it is gone. */
  synchronized Writer writerOf(String dir, long term) {
    return of(dir).live.get(term);
  }

  /** The writer of a term appends no more. */
  synchronized void forget(String dir, long term) {
    of(dir).live.remove(term);
  }

  synchronized void forgetExecutor(String executorId) {
    for (Folder folder : folders.values()) {
      folder
          .live
          .entrySet()
          .removeIf(
              term -> {
                boolean isGone = term.getValue().executorId().equals(executorId);
                if (isGone) {
                  folder.gone.add(term.getKey());
                }
                return isGone;
              });
    }
  }

  /** Returns the terms of a folder whose executors were lost, once. */
  synchronized Set<Long> takeGone(String dir) {
    Set<Long> found = of(dir).gone;
    of(dir).gone = new HashSet<>();
    return found;
  }
}
