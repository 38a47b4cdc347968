package io.holdfast.spark;

import com.codahale.metrics.MetricRegistry;
import java.io.IOException;
import java.util.Arrays;
import java.util.Collections;
import java.util.HashMap;
import java.util.List;
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
  /** What the closed files of a folder take. */
  private record Space(long physicalBytes, long pinnedBytes) {}

  /** By folder, as of its last clean-up. */
  private final Map<String, Space> spaces = new ConcurrentHashMap<>();

  /** Writer of every term given by this application that may still append. */
  private final Map<String, Map<Long, DurableFiles.Writer>> liveTerms = new HashMap<>();

  /** Newest term given by this application; read without the lock. */
  private final Map<String, Long> lastTerm = new ConcurrentHashMap<>();

  /** Newest term of another application, found when a run began: terms up to it are over. */
  private final Map<String, Long> foreignTerms = new HashMap<>();

  /** Handle of what is known about sealed files, 0 before the first clean-up. */
  private long indexCache;

  private final DurableFiles durableFiles = new DurableFiles();
  private final PartitionFolders partitionFolders = new PartitionFolders();
  private Reclaimer reclaimer;
  private RegionalPipelines regionalPipelines;

  @Override
  public Map<String, String> init(SparkContext sc, PluginContext context) {
    BuildInfo.requireSparkMinor(sc.version());
    reclaimer = new Reclaimer(this);
    regionalPipelines = new RegionalPipelines(this, sc.hadoopConfiguration());
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

  /** Spark names them {@code plugin.io.holdfast.spark.HoldfastPlugin.<name>}. */
  @Override
  public void registerMetrics(String appId, PluginContext context) {
    MetricRegistry registry = context.metricRegistry();
    ExecutorTotals.gauge(
        registry,
        "closedFileBytes",
        () -> spaces.values().stream().mapToLong(space -> space.physicalBytes()).sum());
    ExecutorTotals.gauge(
        registry,
        "pinnedBytes",
        () -> spaces.values().stream().mapToLong(space -> space.pinnedBytes()).sum());
  }

  @Override
  public Object receive(Object message) {
    if (message instanceof TermRequest request) {
      return term(
          request.folder(),
          request.held,
          new DurableFiles.Writer(request.executorId, request.executor));
    }
    if (message instanceof LostFiles) {
      durableFiles.lost((LostFiles) message);
      return true;
    }
    Object answer = regionalPipelines.receive(message);
    if (answer != null) {
      return answer;
    }
    throw new IllegalArgumentException("Unknown message " + message);
  }

  @Override
  public void shutdown() {
    HoldfastPlugin.stopped(this);
    reclaimer.stop();
    regionalPipelines.stop();
    synchronized (this) {
      // A clean-up that still runs keeps it alive; a later one fails, as it should.
      if (indexCache != 0) {
        Native.closeIndexCache(indexCache);
      }
    }
  }

  /** An entry of the commit log is complete and about to be published. */
  void publishing(Path entry, List<CommitLog.StoreId> ids, Configuration conf)
      throws IOException {
    Path state = CommitLog.stateOf(entry);
    StateFolder folder = StateFolder.of(state.toString(), conf);
    String[] texts = ids.stream().map(store -> store.id).toArray(String[]::new);
    durableFiles.makeDurable(folder, texts, term -> writerOf(folder.name, term));
    requireNewest(folder);
    if (entry.getName().equals("0")) {
      partitionFolders.forget(state);
    }
    partitionFolders.create(state, ids, conf);
  }

  /** An entry of the commit log is on disk. */
  void published(Path entry, Configuration conf) {
    reclaimer.published(entry, conf);
  }

  /** Deletes what the oldest retained entry and everything after it do not need. */
  String reclaim(StateFolder folder, String[] partitions, String[] ids) {
    long cache;
    long[] live;
    long last;
    List<ExecutorLink> executors;
    synchronized (this) {
      if (indexCache == 0) {
        indexCache = Native.openIndexCache();
      }
      cache = indexCache;
      // A file of a term given from now on stops the pass: the next one knows it.
      Map<Long, DurableFiles.Writer> writers =
          liveTerms.getOrDefault(folder.name, Collections.emptyMap());
      live = writers.keySet().stream().mapToLong(Long::longValue).toArray();
      last = lastTerm.getOrDefault(folder.name, 0L);
      executors = writers.values().stream().map(writer -> writer.link()).toList();
    }
    String[] done =
        Native.reclaim(cache, folder.name, folder.files(), partitions, ids, live, last);
    Space space = new Space(Long.parseLong(done[1]), Long.parseLong(done[2]));
    spaces.put(folder.name, space);
    List<String> wasteful = Arrays.asList(done).subList(3, done.length);
    long toTell = space.pinnedBytes();
    for (ExecutorLink executor : executors) {
      executor.tell(new WasteNotice(folder.name, toTell, wasteful));
      // One of them reports the bytes: tasks' metrics are added up.
      toTell = 0;
    }
    return done[0];
  }

  /**
   * Fails when a file of {@code folder} carries a newer term than any this application gave: another
   * application restarted the query, so this one must not commit any more.
   */
  void requireNewest(StateFolder folder) {
    // Listed first: a term given meanwhile is in lastTerm before its first file exists.
    long found = Native.newestTerm(folder.name, folder.files());
    long given = newestGiven(folder.name);
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

  /**
   * The term for a run that begins: the one that the executor holds, or a new one where that is none
   * or another application has written since. Else the run could commit nothing, see {@link
   * #requireNewest}.
   */
  private synchronized long term(StateFolder folder, long held, DurableFiles.Writer writer) {
    if (held != 0) {
      long found = Native.newestTerm(folder.name, folder.files());
      if (found > lastTerm.getOrDefault(folder.name, 0L)) {
        foreignTerms.put(folder.name, found);
      }
      // Every executor holds one that is older than the other application's.
      if (held > foreignTerms.getOrDefault(folder.name, 0L)) {
        return held;
      }
    }
    return nextTerm(folder, writer);
  }

  /**
   * Above every term in the folder and every term given before. The clock is in it so that a term
   * whose files were all deleted since is not given again.
   */
  synchronized long nextTerm(StateFolder folder, DurableFiles.Writer writer) {
    String dir = folder.name;
    long newest =
        Math.max(Native.newestTerm(dir, folder.files()), lastTerm.getOrDefault(dir, 0L));
    long term = Math.max(newest + 1, System.currentTimeMillis() * 1000);
    lastTerm.put(dir, term);
    liveTerms.computeIfAbsent(dir, key -> new HashMap<>()).put(term, writer);
    return term;
  }

  /** The newest term of a folder that this application gave; 0 if none. */
  long newestGiven(String dir) {
    return lastTerm.getOrDefault(dir, 0L);
  }

  /** Writers of a folder by their terms. */
  synchronized Map<Long, DurableFiles.Writer> writers(String dir) {
    return Map.copyOf(liveTerms.getOrDefault(dir, Collections.emptyMap()));
  }

  /** The writer of a term appends no more. */
  synchronized void forgetTerm(String dir, long term) {
    liveTerms.getOrDefault(dir, Collections.emptyMap()).remove(term);
  }

  RegionalPipelines regionalPipelines() {
    return regionalPipelines;
  }

  private synchronized DurableFiles.Writer writerOf(String dir, long term) {
    return liveTerms.getOrDefault(dir, Collections.emptyMap()).get(term);
  }

  private synchronized void forgetExecutor(String executorId) {
    liveTerms
        .values()
        .forEach(terms -> terms.values().removeIf(writer -> writer.executorId().equals(executorId)));
  }
}
