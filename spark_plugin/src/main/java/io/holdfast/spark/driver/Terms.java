package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.ExecutorLink;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/** The terms of managers. The driver gives each term once, and above all terms in the folder. */
public final class Terms {
  /** The executor of a term, unless it is known to be gone. */
  public record Writer(String executorId, ExecutorLink link) {
    @Override
    public String toString() {
      return "executor " + executorId;
    }
  }

  /** By folder, the writers that may still append, by terms of this application. */
  private final Map<String, Map<Long, Writer>> live = new HashMap<>();

  /** By folder, the newest term of this application; read without the lock. */
  private final Map<String, Long> newest = new ConcurrentHashMap<>();

  /**
   * By folder, the newest term of another application at the start of a run. It ends older terms.
   */
  private final Map<String, Long> foreign = new HashMap<>();

  /** Folders in which a term was given since {@link #gaveTerm}. */
  private final Set<String> given = new HashSet<>();

  /**
   * The term for a run that begins. It is a new one if the executor holds none, or if another
   * application has written since: {@link #requireNewest} would refuse commits with the old term.
   */
  synchronized long forRun(SegmentFolder folder, long held, Writer writer) {
    if (held != 0) {
      long found = Native.newestTerm(folder.name, folder.files());
      if (found > newest(folder.name)) {
        foreign.put(folder.name, found);
      }
      // All executors hold terms that are older than the term of the other application.
      if (held > foreign.getOrDefault(folder.name, 0L)) {
        return held;
      }
    }
    return next(folder, writer);
  }

  /**
   * Gives a term above every term in the folder and every term given before. It contains the clock,
   * so that no term is given again after all of its files were deleted.
   */
  synchronized long next(SegmentFolder folder, Writer writer) {
    String dir = folder.name;
    long last = Math.max(Native.newestTerm(dir, folder.files()), newest(dir));
    given.add(dir);
    long term = Math.max(last + 1, System.currentTimeMillis() * 1000);
    newest.put(dir, term);
    live.computeIfAbsent(dir, key -> new HashMap<>()).put(term, writer);
    return term;
  }

  /**
   * Returns whether a term was given since the last call, and so above those of another application
   * that has taken over meanwhile. {@link #requireNewest} does not notice that application any more.
   */
  synchronized boolean gaveTerm(SegmentFolder folder) {
    return given.remove(folder.name);
  }

  /** The newest term that this application gave for a folder; 0 without one. */
  public long newest(String dir) {
    return newest.getOrDefault(dir, 0L);
  }

  /**
   * Fails if a file of {@code folder} has a newer term than all terms of this application. Another
   * application restarted the query then, and this one must not commit any more.
   */
  void requireNewest(SegmentFolder folder) {
    // The listing comes first: a term given meanwhile is known before its first file exists.
    long found = Native.newestTerm(folder.name, folder.files());
    long given = newest(folder.name);
    if (found > given) {
      throw new HoldfastException(
          String.format(
              "Another query took over this checkpoint: %s has files of term %x, the newest of this"
                  + " application is %x. The batch was not committed and nothing is lost, but this"
                  + " query must be stopped: only one query may use a checkpoint.",
              folder.name, found, given));
    }
  }

  /** The terms of a folder at one moment. */
  record Given(Map<Long, Writer> writers, long newest) {}

  synchronized Given given(String dir) {
    return new Given(writers(dir), newest(dir));
  }

  /** Writers of a folder by their terms. */
  public synchronized Map<Long, Writer> writers(String dir) {
    return Map.copyOf(live.getOrDefault(dir, Map.of()));
  }

  /** The writer of a term; null if it is gone. */
  synchronized Writer writerOf(String dir, long term) {
    return live.getOrDefault(dir, Map.of()).get(term);
  }

  /** The writer of a term appends no more. */
  synchronized void forget(String dir, long term) {
    live.getOrDefault(dir, Map.of()).remove(term);
  }

  /** An executor is gone. */
  synchronized void forgetExecutor(String executorId) {
    live.values()
        .forEach(terms -> terms.values().removeIf(writer -> writer.executorId().equals(executorId)));
  }
}
