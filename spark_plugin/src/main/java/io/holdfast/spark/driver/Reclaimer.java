package io.holdfast.spark.driver;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.FencedException;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.Native;
import io.holdfast.spark.merged.Reclaimed;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.sparklog.SparkFile;
import io.holdfast.spark.ui.UiEvents;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
import java.util.function.ToLongFunction;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Deletes merged files that no retained batch needs. Only the driver can decide this, because
 * executors share a file after a partition has moved.
 *
 * <p>Spark removes old entries of the commit log (spark.sql.streaming.minBatchesToRetain). The
 * oldest remaining entry is the oldest batch whose state is needed, but for leases.
 */
final class Reclaimer {
  private static final Logger LOG = LoggerFactory.getLogger(Reclaimer.class);

  /**
   * On object stores executors tell of the files that they finish. Only a list finds files that
   * nobody told of, because their executor died.
   */
  private static final int PASSES_BETWEEN_LISTS = 8;

  private final Terms terms;

  private final Consumer<SparkListenerEvent> events;
  private final Map<String, String> queries = new ConcurrentHashMap<>(); // by folder

  /** By folder, the result of its last clean-up. */
  private final Map<String, Reclaimed> reclaimed = new ConcurrentHashMap<>();

  private final KnownFiles known = new KnownFiles();

  /** Folders that had a clean-up in this run. */
  private final Set<String> begun = ConcurrentHashMap.newKeySet();

  private final AtomicBoolean busy = new AtomicBoolean();
  private final ExecutorService worker =
      Executors.newSingleThreadExecutor(DaemonThreads.named("holdfast-reclaimer"));

  Reclaimer(Terms terms, Consumer<SparkListenerEvent> events) {
    this.terms = terms;
    this.events = events;
  }

  void register(MetricRegistry registry) {
    register(registry, "closedFileBytes", Reclaimed::physicalBytes);
    register(registry, "pinnedBytes", Reclaimed::pinnedBytes);
  }

  private void register(MetricRegistry registry, String name, ToLongFunction<Reclaimed> figure) {
    Gauge<Long> sum = () -> reclaimed.values().stream().mapToLong(figure).sum();
    registry.register(name, sum);
  }

  /** Another application may have written catalogs. */
  void starting(SegmentFolder folder) {
    begun.remove(folder.name);
  }

  void told(SegmentFolder folder, List<byte[]> files) {
    known.told(folder, files);
  }

  void publishing(SegmentFolder folder, String query) {
    queries.put(folder.name, query);
  }

  void published(SparkFile entry, Configuration conf) {
    long every = batchesBetween(conf);
    boolean due = entry.number() % every == every - 1;
    SegmentFolder folder = SegmentFolder.of(new Path(entry.checkpoint(), "state").toString(), conf);
    if (known.hasNews(folder)) {
      worker.execute(() -> known.learn(folder, terms.newest(folder.name)));
    }
    // If a pass still runs, this one is skipped, and the next one does its work.
    if (due && busy.compareAndSet(false, true)) {
      boolean lists = entry.number() / every % PASSES_BETWEEN_LISTS == 0;
      worker.execute(() -> run(folder, entry, conf, lists));
    }
  }

  /** Spark's providers read these settings alike. */
  private static long batchesBetween(Configuration conf) {
    int retained = conf.getInt(HoldfastConf.RETAINED_KEY, HoldfastConf.RETAINED_DEFAULT);
    double extra = conf.getDouble(HoldfastConf.EXTRA_SPACE_KEY, HoldfastConf.EXTRA_SPACE_DEFAULT);
    return Math.max(1, Math.round(retained * extra));
  }

  void stop() {
    worker.shutdownNow();
    known.close();
  }

  private void run(SegmentFolder folder, SparkFile entry, Configuration conf, boolean lists) {
    try {
      Path log = entry.path().getParent();
      // Leases are read after it: see rust/core/src/leases/mod.rs.
      long first = CommitLog.batches(log, conf).min().orElse(entry.number());
      List<CommitLog.StoreId> oldest =
          CommitLog.needed(CommitLog.read(new Path(log, Long.toString(first)), conf));
      String done = reclaim(folder, entry.number(), first, oldest, lists);
      if (!done.isEmpty()) {
        LOG.info("Holdfast reclaimed {}: {}", folder.name, done);
      }
    } catch (IOException | RuntimeException e) {
      // Only disk space depends on it, and the next pass tries again.
      LOG.warn("Holdfast could not reclaim files in {}", folder.name, e);
    } finally {
      busy.set(false);
    }
  }

  /**
   * Deletes files that neither the oldest retained entry, nor a later entry, nor a lease needs.
   *
   * @param batch that was published last
   * @param first the oldest retained batch
   * @param oldest ids of its entry
   * @param listsNow whether it is time to list the files
   * @return the work done, for the log; empty if there was none
   */
  private String reclaim(
      SegmentFolder folder,
      long batch,
      long first,
      List<CommitLog.StoreId> oldest,
      boolean listsNow) {
    String[] partitions = oldest.stream().map(CommitLog.StoreId::partition).toArray(String[]::new);
    String[] ids = oldest.stream().map(CommitLog.StoreId::id).toArray(String[]::new);
    boolean told = folder.hidesOpenFiles();
    boolean lists = !told || listsNow;
    if (told && begun.add(folder.name)) {
      lists |= !known.restore(folder);
    }
    // A file of a term that is given later stops the pass. The next pass knows the term.
    Terms.Given given = terms.given(folder.name);
    long[] live = given.writers().keySet().stream().mapToLong(Long::longValue).toArray();
    SegmentFolder leases = folder.leases();
    Reclaimed found;
    try {
      found =
          Native.reclaim(
              known.cache(),
              folder.name,
              folder.files(),
              leases.name,
              leases.files(),
              partitions,
              ids,
              first,
              System.currentTimeMillis(),
              live,
              given.own(),
              given.older(),
              told,
              lists);
    } catch (FencedException e) {
      terms.lookForOthers(folder);
      throw e;
    }
    reclaimed.put(folder.name, found);
    if (told) {
      known.replaceCatalogs(folder, terms.newest(folder.name));
    }
    String query = queries.get(folder.name);
    if (query != null) {
      events.accept(
          new UiEvents.FilesCounted(
              query,
              batch,
              found.files(),
              found.bytes(),
              found.physicalBytes(),
              found.pinnedBytes(),
              System.currentTimeMillis()));
    }
    long toTell = found.pinnedBytes();
    for (Terms.Writer writer : given.writers().values()) {
      // No answer is needed: the next notice names these files again.
      writer.link().ask(new ExecutorRequest.WasteNotice(folder.name, toTell, found.wasteful()));
      // Only one executor reports the bytes, because Spark adds up the metrics of tasks.
      toTell = 0;
    }
    return found.done();
  }
}
