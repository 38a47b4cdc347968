package io.holdfast.spark.executor;

import io.holdfast.spark.rpc.DriverLink;
import io.holdfast.spark.rpc.ExecutorEndpoint;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.storage.LocalModes;
import java.util.Map;
import java.util.function.Consumer;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.deploy.SparkHadoopUtil;

/** Executor side of the plugin: managers of state stores and of regional pipelines. */
public final class HoldfastExecutor implements ExecutorPlugin {
  /** Entries for state readers. */
  private final CommitEntries commitEntries = new CommitEntries();

  private final Consumer<HoldfastExecutor> started;
  private final Consumer<HoldfastExecutor> stopped;
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
    DriverLink driver = new DriverLink(context);
    stores = new StoreManagers(driver, endpoint.link(), MemoryFacts.here(context.conf()));
    regional = new RegionalManagers(driver, endpoint.link());
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
    if (request instanceof ExecutorRequest.TellManager message) {
      return regional.tell(message);
    }
    return regional.close((ExecutorRequest.CloseManager) request);
  }

  public StoreManagers stores() {
    return stores;
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
