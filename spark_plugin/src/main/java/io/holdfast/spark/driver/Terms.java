package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.files.SegmentFolder;
import io.holdfast.spark.rpc.ExecutorLink;
import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/**
 * The terms that the driver gave to managers: each one once, above every term that the folder has
 * files of.
 */
public final class Terms {
  /** The executor of a term, as long as it is not known to be gone. */
  public record Writer(String executorId, ExecutorLink link) {
    @Override
    public String toString() {
      return "executor " + executorId;
    }
  }

  /** By folder, writer of every term given by this application that may still append. */
  private final Map<String, Map<Long, Writer>> live = new HashMap<>();

  /** By folder, newest term given by this application; read without the lock. */
  private final Map<String, Long> newest = new ConcurrentHashMap<>();

  /** Newest term of another application, found when a run began: terms up to it are over. */
  private final Map<String, Long> foreign = new HashMap<>();

  /**
   * The term for a run that begins: the one that the executor holds, or a new one where that is none
   * or another application has written since. Else the run could commit nothing, see {@link
   * #requireNewest}.
   */
  synchronized long forRun(SegmentFolder folder, long held, Writer writer) {
    if (held != 0) {
      long found = Native.newestTerm(folder.name, folder.files());
      if (found > newest(folder.name)) {
        foreign.put(folder.name, found);
      }
      // Every executor holds one that is older than the other application's.
      if (held > foreign.getOrDefault(folder.name, 0L)) {
        return held;
      }
    }
    return next(folder, writer);
  }

  /**
   * Above every term in the folder and every term given before. The clock is in it so that a term
   * whose files were all deleted since is not given again.
   */
  synchronized long next(SegmentFolder folder, Writer writer) {
    String dir = folder.name;
    long last = Math.max(Native.newestTerm(dir, folder.files()), newest(dir));
    long term = Math.max(last + 1, System.currentTimeMillis() * 1000);
    newest.put(dir, term);
    live.computeIfAbsent(dir, key -> new HashMap<>()).put(term, writer);
    return term;
  }

  /** Newest term that this application gave for a folder; 0 without one. */
  public long newest(String dir) {
    return newest.getOrDefault(dir, 0L);
  }

  /**
   * Fails when a file of {@code folder} carries a newer term than any this application gave: another
   * application restarted the query, so this one must not commit any more.
   */
  void requireNewest(SegmentFolder folder) {
    // Listed first: a term given meanwhile is known here before its first file exists.
    long found = Native.newestTerm(folder.name, folder.files());
    long given = newest(folder.name);
    if (found > given) {
      throw new HoldfastException(
          "Another query took over this checkpoint: "
              + folder.name
              + " has files of term "
              + Long.toHexString(found)
              + ", the newest of this application is "
              + Long.toHexString(given)
              + ". The batch was not committed and nothing is lost, but this query must be"
              + " stopped: only one query may use a checkpoint.");
    }
  }

  /** The terms of a folder at one moment. */
  record Given(Map<Long, Writer> writers, long newest) {}

  /** Writers of a folder by their terms, and the newest term that was given until now. */
  synchronized Given given(String dir) {
    return new Given(writers(dir), newest(dir));
  }

  /** Writers of a folder by their terms. */
  public synchronized Map<Long, Writer> writers(String dir) {
    return Map.copyOf(live.getOrDefault(dir, Collections.emptyMap()));
  }

  /** The writer of a term; null when it is gone. */
  synchronized Writer writerOf(String dir, long term) {
    return live.getOrDefault(dir, Collections.emptyMap()).get(term);
  }

  /** The writer of a term appends no more. */
  synchronized void forget(String dir, long term) {
    live.getOrDefault(dir, Collections.emptyMap()).remove(term);
  }

  /** An executor is gone. */
  synchronized void forgetExecutor(String executorId) {
    live.values()
        .forEach(terms -> terms.values().removeIf(writer -> writer.executorId().equals(executorId)));
  }
}
