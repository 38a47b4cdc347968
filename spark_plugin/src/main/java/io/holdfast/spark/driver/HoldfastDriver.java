package io.holdfast.spark.driver;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import io.holdfast.spark.Native;
import io.holdfast.spark.files.CommitLog;
import io.holdfast.spark.files.Reclaimed;
import io.holdfast.spark.files.SegmentFolder;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.rpc.LostFiles;
import io.holdfast.spark.rpc.TermRequest;
import io.holdfast.spark.ui.HoldfastUi;
import io.holdfast.spark.ui.UiEvents;
import java.io.IOException;
import java.util.Collections;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;

/**
 * Driver side of the plugin: answers executors, makes files durable before their batch commits, and
 * reclaims files of all executors once no retained batch needs them.
 */
public final class HoldfastDriver implements DriverPlugin {
  /** A local property of the threads of a query. */
  private static final String QUERY_ID_KEY = "sql.streaming.queryId";

  /** By folder, the query that publishes there. */
  private final Map<String, String> queries = new ConcurrentHashMap<>();

  /** By folder, what its last clean-up found. */
  private final Map<String, Reclaimed> reclaimed = new ConcurrentHashMap<>();

  /** Handle of what is known about sealed files, 0 before the first clean-up. */
  private long indexCache;

  private final Terms terms = new Terms();
  private final DurableFiles durableFiles = new DurableFiles(terms);
  private final PartitionFolders partitionFolders = new PartitionFolders();
  private final SparkRecords sparkRecords = new SparkRecords();
  private final Consumer<HoldfastDriver> started;
  private final Consumer<HoldfastDriver> stopped;
  private Reclaimer reclaimer;
  private RegionalPipelines regionalPipelines;
  private RegionalMetrics regionalMetrics;
  private Consumer<SparkListenerEvent> events;
  private Supplier<String> queryOfThread;

  /**
   * @param started receives this side when it can be used
   * @param stopped receives this side when it ends
   */
  public HoldfastDriver(Consumer<HoldfastDriver> started, Consumer<HoldfastDriver> stopped) {
    this.started = started;
    this.stopped = stopped;
  }

  @Override
  public Map<String, String> init(SparkContext sc, PluginContext context) {
    BuildInfo.requireSpark(sc.version());
    reclaimer = new Reclaimer(this::reclaim);
    regionalMetrics = new RegionalMetrics(context.metricRegistry());
    events = event -> sc.listenerBus().post(event);
    queryOfThread = () -> sc.getLocalProperty(QUERY_ID_KEY);
    regionalPipelines =
        new RegionalPipelines(terms, sc.hadoopConfiguration(), regionalMetrics, events);
    sc.addSparkListener(
        new SparkListener() {
          @Override
          public void onExecutorRemoved(SparkListenerExecutorRemoved removed) {
            terms.forgetExecutor(removed.executorId());
          }
        });
    HoldfastUi.attach(sc);
    started.accept(this);
    return Collections.emptyMap();
  }

  /** Spark names them {@code plugin.io.holdfast.spark.HoldfastPlugin.<name>}. */
  @Override
  public void registerMetrics(String appId, PluginContext context) {
    MetricRegistry registry = context.metricRegistry();
    registry.register(
        "closedFileBytes",
        (Gauge<Long>)
            () -> reclaimed.values().stream().mapToLong(Reclaimed::physicalBytes).sum());
    registry.register(
        "pinnedBytes",
        (Gauge<Long>)
            () -> reclaimed.values().stream().mapToLong(Reclaimed::pinnedBytes).sum());
  }

  @Override
  public Object receive(Object message) {
    if (message instanceof TermRequest request) {
      Terms.Writer writer = new Terms.Writer(request.executorId(), request.executor());
      return terms.forRun(request.folder(), request.held(), writer);
    }
    if (message instanceof LostFiles lost) {
      durableFiles.lost(lost);
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
    stopped.accept(this);
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
    sparkRecords.committing(state.getParent(), conf);
    SegmentFolder folder = SegmentFolder.of(state.toString(), conf);
    String[] texts = ids.stream().map(store -> store.id).toArray(String[]::new);
    String query = queryOfThread.get();
    if (query != null) {
      queries.put(folder.name, query);
    }
    durableFiles.makeDurable(folder, texts);
    terms.requireNewest(folder);
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
  private String reclaim(SegmentFolder folder, long batch, String[] partitions, String[] ids) {
    long cache;
    synchronized (this) {
      if (indexCache == 0) {
        indexCache = Native.openIndexCache();
      }
      cache = indexCache;
    }
    // A file of a term given from now on stops the pass: the next one knows it.
    Terms.Given given = terms.given(folder.name);
    long[] live = given.writers().keySet().stream().mapToLong(Long::longValue).toArray();
    Reclaimed pass =
        Native.reclaim(
            cache, folder.name, folder.files(), partitions, ids, live, given.newest());
    reclaimed.put(folder.name, pass);
    tell(folder, batch, pass);
    long toTell = pass.pinnedBytes();
    for (Terms.Writer writer : given.writers().values()) {
      // Best effort: the next notice names these files again.
      writer.link().ask(new ExecutorRequest.WasteNotice(folder.name, toTell, pass.wasteful()));
      // One of them reports the bytes: tasks' metrics are added up.
      toTell = 0;
    }
    return pass.done();
  }

  /** Listeners of the application hear what a clean-up of a query's files found. */
  private void tell(SegmentFolder folder, long batch, Reclaimed pass) {
    String query = queries.get(folder.name);
    if (query != null) {
      events.accept(
          new UiEvents.FilesCounted(
              query,
              batch,
              pass.files(),
              pass.bytes(),
              pass.physicalBytes(),
              pass.pinnedBytes(),
              System.currentTimeMillis()));
    }
  }

  public Terms terms() {
    return terms;
  }

  public SparkRecords sparkRecords() {
    return sparkRecords;
  }

  public RegionalPipelines regionalPipelines() {
    return regionalPipelines;
  }

  public RegionalMetrics regionalMetrics() {
    return regionalMetrics;
  }
}
