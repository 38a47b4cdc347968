package io.holdfast.spark;

import java.util.Arrays;
import java.util.concurrent.locks.ReentrantReadWriteLock;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreInstanceMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's {@code StateStoreProvider} for one partition of one operator, kept in a native table and
 * in the merged files of the executor's manager.
 *
 * <p>The driver makes instances only to list metrics, so construction does nothing.
 */
public final class HoldfastStateStoreProvider implements StateStoreProvider {
  private volatile boolean unloaded;
  private ReentrantReadWriteLock maintenanceLock = new ReentrantReadWriteLock();

  private StateStoreId id;
  private StoreContext context;
  private TableHandle table;

  @Override
  public void init(
      StateStoreId stateStoreId,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec keyStateEncoderSpec,
      boolean useColumnFamilies,
      StateStoreConf storeConf,
      Configuration hadoopConf,
      boolean useMultipleValuesPerKey,
      Option<StateSchemaProvider> stateSchemaProvider) {
    id = stateStoreId;
    refuseUnsupported(keyStateEncoderSpec, useColumnFamilies, storeConf, useMultipleValuesPerKey);
    requireFileManager(hadoopConf);
    context = new StoreContext(id, keySchema, valueSchema, storeConf, hadoopConf);
    HoldfastConf conf = new HoldfastConf(CollectionConverters.asJava(storeConf.sqlConfs()));
    StateFolder folder = StateFolder.of(id.checkpointRootLocation(), hadoopConf);
    table =
        new TableHandle(
            HoldfastPlugin.executor().acquire(folder, conf),
            Long.toString(id.operatorId()),
            Integer.toString(id.partitionId()),
            id.storeName());
  }

  private void refuseUnsupported(
      KeyStateEncoderSpec encoder,
      boolean columnFamilies,
      StateStoreConf conf,
      boolean multipleValues) {
    if (!conf.enableStateStoreCheckpointIds()) {
      throw new UnsupportedStateException(
          Messages.formatTooOld(Integer.toString(conf.stateStoreCheckpointFormatVersion())));
    }
    if (columnFamilies || multipleValues) {
      throw new UnsupportedStateException(
          "Operator "
              + id.operatorId()
              + " keeps several column families or values per key (transformWithState, or a join"
              + " with state format 3 or above); this Holdfast release does not serve it yet. Use"
              + " another state store provider for this query.");
    }
    if (!(encoder instanceof NoPrefixKeyStateEncoderSpec)) {
      throw new UnsupportedStateException(
          "Operator "
              + id.operatorId()
              + " scans its state by key prefix or range (session windows, timers); this Holdfast"
              + " release does not serve it yet. Use another state store provider for this"
              + " query.");
    }
    if (conf.rowChecksumEnabled()) {
      throw new UnsupportedStateException(
          "spark.sql.streaming.stateStore.rowChecksum.enabled is not served yet. Holdfast checks"
              + " every segment it reads against a digest; switch the setting off.");
    }
  }

  /** Without it nobody would make state files durable before the batch that needs them commits. */
  private static void requireFileManager(Configuration hadoopConf) {
    String found = hadoopConf.get(HoldfastConf.FILE_MANAGER_KEY);
    if (!HoldfastConf.FILE_MANAGER_CLASS.equals(found)) {
      throw new UnsupportedStateException(
          HoldfastConf.FILE_MANAGER_KEY
              + " must be "
              + HoldfastConf.FILE_MANAGER_CLASS
              + ", found "
              + found
              + ": without it state files would not be durable when their batch commits. Use"
              + " holdfast.configure(builder), or all lines of 'holdfast conf'.");
    }
  }

  @Override
  public StateStoreId stateStoreId() {
    return id;
  }

  @Override
  public StateStore getStore(
      long version, Option<String> checkpointId, boolean forceSnapshotOnCommit, boolean loadEmpty) {
    if (loadEmpty) {
      throw new UnsupportedStateException(
          "Rewriting the state of " + table + " from empty is not served yet");
    }
    HoldfastReadStore read = open(version, checkpointId);
    return write(read, version, checkpointId);
  }

  @Override
  public ReadStateStore getReadStore(long version, Option<String> checkpointId) {
    return open(version, checkpointId);
  }

  @Override
  public StateStore upgradeReadStoreToWriteStore(
      ReadStateStore readStore,
      long version,
      Option<String> checkpointId,
      boolean forceSnapshotOnCommit) {
    if (!(readStore instanceof HoldfastReadStore) || readStore.version() != version) {
      throw new IllegalArgumentException(
          "Cannot upgrade " + readStore + " to version " + version + " of " + table);
    }
    return write((HoldfastReadStore) readStore, version, checkpointId);
  }

  private HoldfastReadStore open(long version, Option<String> checkpointId) {
    table.acquire();
    try {
      long[] statsBefore = table.stats();
      table.load(version, checkpointId.getOrElse(() -> null));
      return new HoldfastReadStore(context, table, version, statsBefore);
    } catch (RuntimeException e) {
      table.releaseOutsideTask();
      throw e;
    }
  }

  private StateStore write(HoldfastReadStore read, long version, Option<String> checkpointId) {
    try {
      table.begin();
      return new HoldfastStateStore(context, table, read, version, checkpointId);
    } catch (RuntimeException e) {
      table.releaseOutsideTask();
      throw e;
    }
  }

  /** Called by background maintenance, and at task end through {@link #doMaintenance}. */
  @Override
  public void doSnapshotMaintenance() {
    long version = table.writeBaseImage(context.conf.minDeltasForSnapshot());
    if (version >= 0 && context.conf.reportSnapshotUploadLag()) {
      StateStoreProviderId providerId = new StateStoreProviderId(id, context.runId());
      StateStoreProvider$.MODULE$
          .coordinatorRef()
          .foreach(ref -> ref.snapshotUploaded(providerId, version, System.currentTimeMillis()));
    }
  }

  /** The form that runs when {@code unloadOnCommit} is on. */
  @Override
  public void doMaintenance() {
    doSnapshotMaintenance();
  }

  @Override
  public void close() {
    if (table != null) {
      table.close();
      table = null;
    }
  }

  @Override
  public Seq<StateStoreCustomMetric> supportedCustomMetrics() {
    return CollectionConverters.asScala(Arrays.asList(StoreMetrics.ALL)).toSeq();
  }

  @Override
  public Seq<StateStoreInstanceMetric> supportedInstanceMetrics() {
    return CollectionConverters.asScala(Arrays.<StateStoreInstanceMetric>asList()).toSeq();
  }

  @Override
  public boolean unloaded() {
    return unloaded;
  }

  @Override
  public void unloaded_$eq(boolean value) {
    unloaded = value;
  }

  @Override
  public ReentrantReadWriteLock maintenanceLock() {
    return maintenanceLock;
  }

  @Override
  @SuppressWarnings("checkstyle:MethodName") // the name is what the Scala trait compiles to
  public void org$apache$spark$sql$execution$streaming$state$StateStoreProvider$_setter_$maintenanceLock_$eq(
      ReentrantReadWriteLock lock) {
    maintenanceLock = lock;
  }
}
