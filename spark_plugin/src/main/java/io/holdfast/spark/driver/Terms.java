package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.ExecutorLink;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;

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

  /** By folder, terms whose executors were lost since the last call of {@link #takeGone}. */
  private final Map<String, Set<Long>> gone = new HashMap<>();

  /** By folder, all terms that this application gave. */
  private final Map<String, TreeSet<Long>> own = new HashMap<>();

  /**
   * By folder, the newest term of another application when the first executor of a run asked. A
   * newer one ends the run. The newest term of this application is no measure: while it has no
   * file, it would hide another application that took over below it.
   */
  private final Map<String, Long> older = new HashMap<>();

  /** Folders in which an executor has asked since the last run started. */
  private final Set<String> begun = new HashSet<>();

  synchronized void starting(SegmentFolder folder) {
    begun.remove(folder.name);
  }

  /**
   * Returns a new term if the executor holds none, or if another application has written since:
   * files of the old term do not stop that application.
   */
  synchronized long forRun(SegmentFolder folder, long held, Writer writer) {
    begin(folder, begun.contains(folder.name) ? 0 : newestForeign(folder));
    return held > older.get(folder.name) ? held : next(folder, writer);
  }

  private void begin(SegmentFolder folder, long foreign) {
    if (begun.add(folder.name)) {
      older.put(folder.name, foreign);
    }
  }

  /**
   * Gives a term above every term in the folder and every term given before. It contains the clock,
   * so no term is given again after all of its files were deleted.
   */
  synchronized long next(SegmentFolder folder, Writer writer) {
    String dir = folder.name;
    long last = Math.max(newestForeign(folder), newest(dir));
    long term = Math.max(last + 1, System.currentTimeMillis() * 1000);
    own.computeIfAbsent(dir, key -> new TreeSet<>()).add(term);
    live.computeIfAbsent(dir, key -> new HashMap<>()).put(term, writer);
    return term;
  }

  /** The newest term that this application gave for a folder; 0 without one. */
  public synchronized long newest(String dir) {
    TreeSet<Long> given = own.get(dir);
    return given == null ? 0 : given.last();
  }

  private long newestForeign(SegmentFolder folder) {
    return Native.newestForeignTerm(folder.name, folder.files(), own(folder.name));
  }

  private long[] own(String dir) {
    return own.getOrDefault(dir, new TreeSet<>()).stream().mapToLong(Long::longValue).toArray();
  }

  /**
   * Fails if another application has written to {@code folder} since the run began: it restarted
   * the query, and this run must not commit any more.
   */
  synchronized void requireNewest(SegmentFolder folder) {
    long found = newestForeign(folder);
    begin(folder, found);
    if (found > older.get(folder.name)) {
      throw new HoldfastException(
          String.format(
              "Another query took over this checkpoint: %s has files of term %x, which this application"
                  + " did not give. The batch was not committed and nothing is lost, but this query"
                  + " must be stopped: only one query may use a checkpoint.",
              folder.name, found));
    }
  }

  record Given(Map<Long, Writer> writers, long[] own, long older) {}

  synchronized Given given(String dir) {
    return new Given(writers(dir), own(dir), older.getOrDefault(dir, 0L));
  }

  public synchronized Map<Long, Writer> writers(String dir) {
    return Map.copyOf(live.getOrDefault(dir, Map.of()));
  }

  /** Terms of the writers of a folder, in order. */
  public synchronized long[] live(String dir) {
    return writers(dir).keySet().stream().mapToLong(Long::longValue).sorted().toArray();
  }

  /** The writer of a term; null if it is gone. */
  synchronized Writer writerOf(String dir, long term) {
    return live.getOrDefault(dir, Map.of()).get(term);
  }

  /** The writer of a term appends no more. */
  synchronized void forget(String dir, long term) {
    live.getOrDefault(dir, Map.of()).remove(term);
  }

  synchronized void forgetExecutor(String executorId) {
    live.forEach(
        (dir, terms) ->
            terms
                .entrySet()
                .removeIf(
                    term -> {
                      boolean isGone = term.getValue().executorId().equals(executorId);
                      if (isGone) {
                        gone.computeIfAbsent(dir, key -> new HashSet<>()).add(term.getKey());
                      }
                      return isGone;
                    }));
  }

  /** Returns the terms of a folder whose executors were lost, once. */
  synchronized Set<Long> takeGone(String dir) {
    Set<Long> found = gone.remove(dir);
    return found == null ? Set.of() : found;
  }
}
