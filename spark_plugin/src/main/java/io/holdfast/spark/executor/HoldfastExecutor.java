package io.holdfast.spark.executor;

import io.holdfast.spark.rpc.DriverLink;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.rpc.ExecutorEndpoint;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.storage.LocalModes;
import io.holdfast.spark.store.Replay;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.TaskContext;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.deploy.SparkHadoopUtil;
import org.apache.spark.util.TaskCompletionListener;

/** Executor side of the plugin: managers of state stores and of regional pipelines. */
public final class HoldfastExecutor implements ExecutorPlugin {
  /** Entries for state readers. */
  private final CommitEntries commitEntries = new CommitEntries();

  /** By task, the replay that it works on. */
  private final Map<Long, Replay> replays = new ConcurrentHashMap<>();

  private final Consumer<HoldfastExecutor> started;
  private final Consumer<HoldfastExecutor> stopped;
  private DriverLink driver;
  private ExecutorEndpoint endpoint;
  private StoreManagers stores;
  private RegionalManagers regional;

  /**
   * @param started receives this side when it can be used
   * @param stopped receives this side when it ends
   */
  public HoldfastExecutor(Consumer<HoldfastExecutor> started, Consumer<HoldfastExecutor> stopped) {
    this.started = started;
    this.stopped = stopped;
  }

  @Override
  public void init(PluginContext context, Map<String, String> extraConf) {
    LocalModes.follow(SparkHadoopUtil.get().newConfiguration(context.conf()));
    endpoint = new ExecutorEndpoint(context.executorID(), this::handle);
    driver = new DriverLink(context);
    stores = new StoreManagers(driver, endpoint.link(), MemoryFacts.here(context.conf()));
    regional = new RegionalManagers(driver, endpoint.link(), stores);
    regional.start();
    stores
        .totals()
        .register(
            context.metricRegistry(), stores::memoryBytes, stores::written, stores::cached);
    started.accept(this);
  }

  /** A request of the driver. */
  private ExecutorReply handle(ExecutorRequest request) {
    if (request instanceof ExecutorRequest.SyncFiles sync) {
      return stores.sync(sync);
    }
    if (request instanceof ExecutorRequest.WasteNotice notice) {
      return stores.accept(notice);
    }
    if (request instanceof ExecutorRequest.ListStores wanted) {
      return stores.list(wanted);
    }
    if (request instanceof ExecutorRequest.TellManager message) {
      return regional.tell(message);
    }
    return regional.close((ExecutorRequest.CloseManager) request);
  }

  public StoreManagers stores() {
    return stores;
  }

  /** Asks the driver what becomes of the partition of a task. */
  public DriverReply.Decision decide(DriverRequest.Decide request) {
    return (DriverReply.Decision) driver.ask(request, "did not decide about a partition");
  }

  /**
   * Begins the replay of parked input in a task.
   *
   * @param waits groups of keys whose rows stay parked
   */
  public Replay beginReplay(TaskContext task, Configuration conf, List<Integer> waits) {
    Replay replay = new Replay(conf, waits);
    replays.put(task.taskAttemptId(), replay);
    task.addTaskCompletionListener(
        (TaskCompletionListener) ended -> replays.remove(ended.taskAttemptId()));
    return replay;
  }

  /** The replay that a task works on; null without one. */
  public Replay replayOf(TaskContext task) {
    return task == null ? null : replays.get(task.taskAttemptId());
  }

  public CommitEntries commitEntries() {
    return commitEntries;
  }

  @Override
  public void shutdown() {
    stopped.accept(this);
    regional.stop();
    endpoint.close();
    stores.stop();
  }
}
