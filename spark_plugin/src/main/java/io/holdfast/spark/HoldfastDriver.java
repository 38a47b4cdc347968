package io.holdfast.spark;

import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;

/**
 * Driver side of the plugin: gives every manager incarnation a term that was never used, and
 * reclaims files of all executors once no retained batch needs them.
 */
final class HoldfastDriver implements DriverPlugin {
  /** Executor of every term given by this application whose executor may still append. */
  private final Map<String, Map<Long, String>> liveTerms = new HashMap<>();

  /** Newest term given by this application; read without the lock, which a reclaim holds long. */
  private final Map<String, Long> lastTerm = new ConcurrentHashMap<>();

  private final DurableFiles durableFiles = new DurableFiles();
  private Reclaimer reclaimer;

  @Override
  public Map<String, String> init(SparkContext sc, PluginContext context) {
    BuildInfo.requireSparkMinor(sc.version());
    reclaimer = new Reclaimer(this);
    sc.addSparkListener(
        new SparkListener() {
          @Override
          public void onExecutorRemoved(SparkListenerExecutorRemoved removed) {
            forgetExecutor(removed.executorId());
          }
        });
    HoldfastPlugin.started(this);
    return Collections.emptyMap();
  }

  @Override
  public Object receive(Object message) {
    if (message instanceof TermRequest) {
      return nextTerm((TermRequest) message);
    }
    if (message instanceof LostFiles) {
      durableFiles.lost((LostFiles) message);
      return true;
    }
    throw new IllegalArgumentException("Unknown message " + message);
  }

  @Override
  public void shutdown() {
    HoldfastPlugin.stopped(this);
    reclaimer.stop();
  }

  DurableFiles durableFiles() {
    return durableFiles;
  }

  /** An entry of the commit log is on disk. */
  void published(Path entry, Configuration conf) {
    reclaimer.published(entry, conf);
  }

  /**
   * Deletes what the oldest retained entry and everything after it do not need. No term is given
   * meanwhile, so every file is either of a known term or of a manager that is gone.
   */
  synchronized String reclaim(String dir, String[] partitions, String[] ids) {
    long[] live =
        liveTerms.getOrDefault(dir, Collections.emptyMap()).keySet().stream()
            .mapToLong(Long::longValue)
            .toArray();
    return Native.reclaim(dir, partitions, ids, live, lastTerm.getOrDefault(dir, 0L));
  }

  /**
   * Fails when a file of {@code dir} carries a newer term than any this application gave: another
   * application restarted the query, so this one must not commit any more.
   */
  void requireNewest(String dir) {
    // Listed first: a term given meanwhile is in lastTerm before its first file exists.
    long found = Native.newestTerm(dir);
    long given = lastTerm.getOrDefault(dir, 0L);
    if (found > given) {
      throw new HoldfastException(
          "Another query took over this checkpoint: "
              + dir
              + " has files of term "
              + Long.toHexString(found)
              + ", the newest of this application is "
              + Long.toHexString(given)
              + ". The batch was not committed and nothing is lost, but this query must be"
              + " stopped: only one query may use a checkpoint.");
    }
  }

  /**
   * Above every term in the folder and every term given before. The clock is in it so that a term
   * whose files were all deleted since is not given again.
   */
  private synchronized long nextTerm(TermRequest request) {
    String dir = request.dir;
    long newest = Math.max(Native.newestTerm(dir), lastTerm.getOrDefault(dir, 0L));
    long term = Math.max(newest + 1, System.currentTimeMillis() * 1000);
    lastTerm.put(dir, term);
    liveTerms.computeIfAbsent(dir, key -> new HashMap<>()).put(term, request.executorId);
    return term;
  }

  private synchronized void forgetExecutor(String executorId) {
    liveTerms.values().forEach(terms -> terms.values().removeIf(executorId::equals));
  }
}
