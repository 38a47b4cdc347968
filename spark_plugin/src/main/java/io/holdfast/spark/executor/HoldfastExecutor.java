package io.holdfast.spark.executor;

import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.rpc.DriverLink;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.rpc.Endpoint;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.storage.LocalModes;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.TaskContext;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.deploy.SparkHadoopUtil;
import org.apache.spark.util.TaskCompletionListener;

/** Executor side of the plugin: managers of state stores and of regional pipelines. */
public final class HoldfastExecutor implements ExecutorPlugin {
  private static final AtomicReference<HoldfastExecutor> RUNNING = new AtomicReference<>();
  private final CommitEntries commitEntries = new CommitEntries(); // for state readers

  /** By task, the replays that it works on, by partition of the operator. */
  private final Map<Long, Map<Integer, Replay>> replays = new ConcurrentHashMap<>();

  /** Syncs wait for storage. */
  private final ExecutorService workers =
      Executors.newCachedThreadPool(DaemonThreads.named("holdfast-sync"));

  private DriverLink driver;
  private Endpoint<ExecutorRequest, ExecutorReply> endpoint;
  private StoreManagers stores;
  private RegionalManagers regional;

  /** Tasks get the executor side here: Spark hands it to no task. */
  public static HoldfastExecutor running() {
    return HoldfastConf.requireRunning(RUNNING.get());
  }

  @Override
  public void init(PluginContext context, Map<String, String> extraConf) {
    LocalModes.follow(SparkHadoopUtil.get().newConfiguration(context.conf()));
    endpoint =
        new Endpoint<>(
            "Holdfast-" + context.executorID(),
            ExecutorRequest.class,
            request -> CompletableFuture.supplyAsync(() -> handle(request), workers),
            ExecutorReply::failed);
    driver = new DriverLink(context);
    stores = new StoreManagers(driver, endpoint.link(), MemoryFacts.here(context.conf()));
    regional = new RegionalManagers(driver, endpoint.link(), stores);
    regional.start();
    stores.totals.register(
        context.metricRegistry(), stores::memoryBytes, stores::written, stores::cached);
    RUNNING.set(this);
  }

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

  public DriverReply.Decision decide(DriverRequest.Decide request) {
    return (DriverReply.Decision) driver.await(request, "did not decide about a partition");
  }

  public DriverReply.RowDecision decideRows(DriverRequest.Decide request) {
    return (DriverReply.RowDecision) driver.await(request, "did not decide about bad rows");
  }

  /** Says that a task is through with a partition it asked about; returns once that is durable. */
  public void settle(DriverRequest.Decide asked, String found, long read) {
    driver.await(
        new DriverRequest.Settle(asked.guard(), asked.part(), found, read),
        "did not make durable what became of a partition");
  }

  /** Begins the replay of pending rows of a partition in a task. */
  public void beginReplay(TaskContext task, Replay replay) {
    replays
        .computeIfAbsent(
            task.taskAttemptId(),
            id -> {
              task.addTaskCompletionListener(
                  (TaskCompletionListener) ended -> replays.remove(ended.taskAttemptId()));
              return new ConcurrentHashMap<>();
            })
        .put(replay.partition(), replay);
  }

  public void endReplay(TaskContext task, Replay replay) {
    replays.get(task.taskAttemptId()).remove(replay.partition());
  }

  /** The replay of a partition that a task works on; null without one. */
  public Replay replayOf(TaskContext task, int partition) {
    return task == null
        ? null
        : replays.getOrDefault(task.taskAttemptId(), Map.of()).get(partition);
  }

  /** The pass whose rows a task delivers. It computes its partitions one after the other. */
  public int passOf(TaskContext task) {
    return replays.getOrDefault(task.taskAttemptId(), Map.of()).values().stream()
        .mapToInt(Replay::pass)
        .min()
        .orElse(Replay.LAST);
  }

  public CommitEntries commitEntries() {
    return commitEntries;
  }

  @Override
  public void shutdown() {
    RUNNING.compareAndSet(this, null);
    regional.stop();
    endpoint.close();
    workers.shutdown();
    stores.stop();
  }
}
