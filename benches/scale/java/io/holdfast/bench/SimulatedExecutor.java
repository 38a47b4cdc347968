package io.holdfast.bench;

import com.codahale.metrics.MetricRegistry;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.Native;
import io.holdfast.spark.driver.HoldfastDriver;
import io.holdfast.spark.executor.HoldfastExecutor;
import io.holdfast.spark.executor.StoreManagers;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.DriverRequest;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkConf;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.resource.ResourceInformation;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.SerializableConfiguration;

/**
 * The executor side of the plugin, once more in this process, with a few partitions. It asks the
 * driver in this process. Spark's messages bring the driver's requests.
 */
final class SimulatedExecutor {
  static final String OPERATOR = "0";
  private static final String STORE = "default";
  private static final int KEYS = 50;
  private static final int CHANGES = 2; // of one batch
  private static final int LONG_BYTES = Long.BYTES;
  private static final int IN_MEMORY = 2; // Spark's default, of versions
  private static final int MIN_CHANGELOGS = 10; // Spark's default

  private final HoldfastExecutor executor = new HoldfastExecutor();
  private final StoreManagers.Manager manager;
  private final String id;
  private final int first; // partition
  private final long[] stores;
  private final long scratch = Platform.allocateMemory(2 * LONG_BYTES);

  private record Context(
      SparkConf conf,
      String executorID,
      MetricRegistry metricRegistry,
      SerializableConfiguration ofDriver)
      implements PluginContext {
    @Override
    public String hostname() {
      return executorID;
    }

    @Override
    public Map<String, ResourceInformation> resources() {
      return Map.of();
    }

    @Override
    public void send(Object message) {
      throw new UnsupportedOperationException("a message without an answer");
    }

    @Override
    public Object ask(Object message) throws Exception {
      Object asked =
          message instanceof DriverRequest.StoreTerm wanted
              ? new DriverRequest.StoreTerm(
                  wanted.dir(), ofDriver, wanted.held(), wanted.executorId(), wanted.executor())
              : message;
      return Meter.ONLY.answering(() -> HoldfastDriver.running().receive(asked));
    }
  }

  /**
   * Joins, and opens its partitions from {@code first} on.
   *
   * @param ofDriver Hadoop's settings, with which the driver looks for terms
   */
  SimulatedExecutor(
      String id,
      SparkConf conf,
      Configuration ofDriver,
      SegmentFolder folder,
      UUID run,
      int first,
      int partitions) {
    this.id = id;
    this.first = first;
    SerializableConfiguration settingsOfDriver = new SerializableConfiguration(ofDriver);
    executor.init(new Context(conf, id, new MetricRegistry(), settingsOfDriver), Map.of());
    HoldfastConf settings = HoldfastConf.of(conf);
    executor.stores().limitMemory(settings);
    manager = executor.stores().acquire(folder, settings, run);
    stores = new long[partitions];
    for (int i = 0; i < partitions; i++) {
      String partition = Integer.toString(first + i);
      stores[i] =
          Native.openStore(
              manager.handle, OPERATOR, partition, STORE, false, Native.ORDERED, false);
    }
  }

  String id() {
    return id;
  }

  int first() {
    return first;
  }

  /** Does the tasks of a batch. Each commits a few changes and replaces the id of its partition. */
  void work(long batch, String[] ids) {
    for (int i = 0; i < stores.length; i++) {
      Native.load(stores[i], batch, ids[first + i]);
      require(stores[i], batch);
      Native.begin(stores[i]);
      for (long change = 0; change < CHANGES; change++) {
        put(stores[i], batch * CHANGES + change);
      }
      ids[first + i] = Native.commit(stores[i]);
      manager.written();
      Native.retain(stores[i], IN_MEMORY);
    }
  }

  private void put(long store, long number) {
    Platform.putLong(null, scratch, number % KEYS);
    Platform.putLong(null, scratch + LONG_BYTES, number);
    Native.put(
        store, Native.ONLY_FAMILY, scratch, LONG_BYTES, scratch + LONG_BYTES, LONG_BYTES);
  }

  /** Fails if the state is not that of the batch before. */
  private void require(long store, long batch) {
    long last = batch * CHANGES - 1;
    if (last < 0) {
      return;
    }
    Platform.putLong(null, scratch, last % KEYS);
    long value = scratch + LONG_BYTES;
    int found =
        Native.get(store, Native.ONLY_FAMILY, scratch, LONG_BYTES, value, LONG_BYTES);
    if (found != LONG_BYTES || Platform.getLong(null, value) != last) {
      throw new IllegalStateException(
          id + ": batch " + batch + " finds other state than batch " + (batch - 1) + " wrote");
    }
  }

  /** Spark's maintenance of all its stores. Their runs share a file. */
  void maintain() {
    for (long store : stores) {
      Native.mergeChangelogs(store, MIN_CHANGELOGS, manager.wasteful);
    }
    Native.sealPendingRuns(manager.handle);
    manager.written();
  }

  /** Nobody answers the driver any more. */
  void end() {
    for (long store : stores) {
      Native.closeStore(store);
    }
    executor.shutdown();
    Platform.freeMemory(scratch);
  }
}
