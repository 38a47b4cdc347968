package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.badrows.SetRowsAside;
import io.holdfast.spark.isolation.driver.DecisionService;
import io.holdfast.spark.isolation.show.ParkedFigures;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.minor.BuildInfo;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.rpc.Endpoint;
import io.holdfast.spark.rpc.MessageBytes;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.sparklog.SparkFile;
import io.holdfast.spark.storage.LocalModes;
import io.holdfast.spark.ui.HoldfastUi;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicReference;
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
 * reclaims files that no retained batch needs.
 */
public final class HoldfastDriver implements DriverPlugin {
  private static final AtomicReference<HoldfastDriver> RUNNING = new AtomicReference<>();

  /** Checkpoints whose query has published a batch in its run. */
  private final Set<String> published = ConcurrentHashMap.newKeySet();

  private final Terms terms = new Terms();
  private final Durability durability = new Durability(terms);
  private final PartitionFolders partitionFolders = new PartitionFolders();
  private final SparkRecords sparkRecords = new SparkRecords();
  private final DefaultProvider defaultProvider = new DefaultProvider();
  private SparkContext spark;
  private DecisionService decisions;
  private ParkedFigures parked;
  private Reclaimer reclaimer;
  private Rebalancer rebalancer;
  private RegionalPipelines regionalPipelines;
  private RegionalMetrics regionalMetrics;
  private Supplier<String> queryOfThread;

  public static HoldfastDriver running() {
    return HoldfastConf.requireRunning(RUNNING.get());
  }

  /** Empty without the plugin: queries without state need none. */
  public static Optional<HoldfastDriver> started() {
    return Optional.ofNullable(RUNNING.get());
  }

  @Override
  public Map<String, String> init(SparkContext sc, PluginContext context) {
    BuildInfo.requireSpark(sc.version());
    DefaultProvider.replaceNamed(sc.conf());
    LocalModes.follow(sc.hadoopConfiguration());
    regionalMetrics = new RegionalMetrics(context.metricRegistry());
    Consumer<SparkListenerEvent> events = event -> sc.listenerBus().post(event);
    reclaimer = new Reclaimer(terms, events);
    queryOfThread = () -> sc.getLocalProperty(HoldfastConf.QUERY_ID_KEY);
    spark = sc;
    decisions = new DecisionService(sc, queryOfThread);
    new Endpoint<DriverRequest, DriverReply>(
        Endpoint.DECISIONS,
        DriverRequest.class,
        decisions::answer,
        failure -> new DriverReply.Refused(failure.toString()));
    parked = new ParkedFigures(decisions);
    regionalPipelines =
        new RegionalPipelines(terms, sc.hadoopConfiguration(), regionalMetrics, events);
    sc.addSparkListener(
        new SparkListener() {
          @Override
          public void onExecutorRemoved(SparkListenerExecutorRemoved removed) {
            terms.forgetExecutor(removed.executorId());
          }
        });
    rebalancer = new Rebalancer(sc, terms);
    sc.addSparkListener(rebalancer);
    sc.addSparkListener(parked);
    HoldfastUi.attach(sc);
    RUNNING.set(this);
    return Map.of();
  }

  /** Spark names them {@code plugin.io.holdfast.spark.HoldfastPlugin.<name>}. */
  @Override
  public void registerMetrics(String appId, PluginContext context) {
    reclaimer.register(context.metricRegistry());
    parked.register(context.metricRegistry());
    SetRowsAside.register(context.metricRegistry());
  }

  @Override
  public Object receive(Object message) {
    return MessageBytes.of(reply((DriverRequest) message));
  }

  private DriverReply reply(DriverRequest request) {
    if (request instanceof DriverRequest.StoreTerm wanted) {
      Terms.Writer writer = new Terms.Writer(wanted.executorId(), wanted.executor());
      return new DriverReply.Term(terms.forRun(wanted.folder(), wanted.held(), writer));
    }
    if (request instanceof DriverRequest.LostFiles lost) {
      durability.lost(lost);
      return new DriverReply.Done();
    }
    if (request instanceof DriverRequest.TermEnded ended) {
      terms.forget(ended.dir(), ended.term());
      return new DriverReply.Done();
    }
    if (request instanceof DriverRequest.Hello hello) {
      return regionalPipelines.welcome(hello);
    }
    if (request instanceof DriverRequest.PipelineTerm wanted) {
      return regionalPipelines.term(wanted);
    }
    return regionalPipelines.take((DriverRequest.Sent) request);
  }

  @Override
  public void shutdown() {
    RUNNING.compareAndSet(this, null);
    reclaimer.stop();
    regionalPipelines.stop();
  }

  /** Called before a query reads the log. */
  public void starting(Path checkpoint, Configuration conf) {
    published.remove(checkpoint.toUri().getPath());
    SegmentFolder folder = SegmentFolder.of(new Path(checkpoint, "state").toString(), conf);
    terms.starting(folder);
    reclaimer.starting(folder);
    decisions.starting(checkpoint);
    defaultProvider.starting(checkpoint, conf);
  }

  /** The query's own thread calls this, when it looks for the newest plan. */
  public void initializing(Path checkpoint, Configuration conf) {
    defaultProvider.initializing(spark, checkpoint, conf);
    decisions.initializing(checkpoint, conf);
    SetRowsAside.starting(spark, checkpoint, conf);
  }

  /** The query's own thread calls this, while none of its tasks runs. */
  public void planning(SparkFile plan, Configuration conf) {
    SetRowsAside.planning(spark, plan.checkpoint(), conf);
    decisions.planning(plan.checkpoint(), plan.number());
    rebalancer.planning(plan.checkpoint(), conf);
  }

  /** Makes everything durable that an entry of the commit log needs, before it is published. */
  void publishing(SparkFile entry, List<CommitLog.StoreId> ids, Configuration conf)
      throws IOException {
    sparkRecords.committing(entry.checkpoint(), conf);
    Path state = new Path(entry.checkpoint(), "state");
    SegmentFolder folder = SegmentFolder.of(state.toString(), conf);
    String query = queryOfThread.get();
    if (query != null) {
      reclaimer.publishing(folder, query);
    }
    reclaimer.told(folder, durability.makeDurable(folder, CommitLog.neededIds(ids)));
    terms.requireNewest(folder);
    if (!published.contains(entry.checkpoint().toUri().getPath())) {
      // Files of this run stop an older application, which may have continued until now.
      CommitLog.requireNext(entry, conf);
    }
    if (entry.number() == 0) {
      partitionFolders.forget(state);
    }
    partitionFolders.create(state, ids, conf);
  }

  /** Called when an entry of the commit log is on disk. */
  void published(SparkFile entry, Configuration conf) {
    published.add(entry.checkpoint().toUri().getPath());
    reclaimer.published(entry, conf);
  }

  public DefaultProvider defaultProvider() {
    return defaultProvider;
  }

  public DecisionService decisions() {
    return decisions;
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
}
