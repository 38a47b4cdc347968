package io.holdfast.spark;

import io.holdfast.spark.driver.HoldfastDriver;
import io.holdfast.spark.executor.HoldfastExecutor;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.minor.MaintainedProvider;
import io.holdfast.spark.minor.OpensStores;
import io.holdfast.spark.minor.ReplaysChanges;
import io.holdfast.spark.minor.SparkCalls;
import io.holdfast.spark.moves.PartitionView;
import io.holdfast.spark.sparklog.ViewId;
import io.holdfast.spark.store.ChangeFeed;
import io.holdfast.spark.store.FamilySpec;
import io.holdfast.spark.store.HoldfastReadStore;
import io.holdfast.spark.store.NativeStore;
import io.holdfast.spark.store.SparkErrors;
import io.holdfast.spark.store.StoreContext;
import io.holdfast.spark.store.StoreMetrics;
import io.holdfast.spark.store.TimedStats;
import java.util.Arrays;
import java.util.function.Supplier;
import java.util.stream.LongStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.util.NextIterator;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Enumeration;
import scala.Option;
import scala.Tuple4;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Spark's {@code StateStoreProvider} for one partition of one operator, with a native table and the
 * merged files of the executor's manager.
 *
 * <p>The driver makes instances only to list metrics, so the constructor does nothing.
 */
public final class HoldfastStateStoreProvider extends MaintainedProvider
    implements OpensStores, ReplaysChanges {
  private static final Logger LOG = LoggerFactory.getLogger(HoldfastStateStoreProvider.class);

  private StateStoreId id;
  private StoreContext context;
  private NativeStore nativeStore;

  /** The newest version reported to Spark's coordinator; only maintenance uses it. */
  private long reportedVersion;

  /** The task that has only opened stores for reading so far, or null. */
  private OpenedForReading opened;

  /** The store for changing that a state reader has not closed, or null. */
  private StateStore ofReader;

  /** Counters before a task first opened a version. */
  private record OpenedForReading(long task, TimedStats statsBefore) {}

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
    requireHadoopConf(hadoopConf);
    SparkErrors.require(
        useColumnFamilies || !useMultipleValuesPerKey,
        "Multiple values per key support requires column families to be enabled in Holdfast.");
    requireFormat(storeConf);
    HoldfastConf.requireFileManager(hadoopConf.get(HoldfastConf.FILE_MANAGER_KEY));
    context =
        new StoreContext(
            id,
            keySchema,
            valueSchema,
            useColumnFamilies,
            storeConf,
            hadoopConf,
            stateSchemaProvider,
            () -> HoldfastExecutor.running().commitEntries());
    String family = StateStore.DEFAULT_COL_FAMILY_NAME();
    context.register(family, valueSchema, keyStateEncoderSpec, useMultipleValuesPerKey, false);
    HoldfastConf conf = new HoldfastConf(CollectionConverters.asJava(storeConf.sqlConfs()));
    HoldfastExecutor.running().stores().limitMemory(conf);
    SegmentFolder folder = SegmentFolder.of(id.checkpointRootLocation(), hadoopConf);
    nativeStore =
        new NativeStore(
            new NativeStore.Identity(
                Long.toString(id.operatorId()),
                Integer.toString(id.partitionId()),
                id.storeName(),
                useColumnFamilies,
                context.families.get(family).options()),
            new NativeStore.Settings(
                () -> HoldfastExecutor.running().stores().acquire(folder, conf, context.runId()),
                // Spark's own provider takes a negative number for 0.
                Math.max(0, storeConf.maxVersionsToRetainInMemory()),
                storeConf.minDeltasForSnapshot(),
                conf.changeJournal,
                this::report));
  }

  private void requireHadoopConf(Configuration hadoopConf) {
    if (hadoopConf == null || hadoopConf.get(HoldfastConf.RUN_ID_KEY) == null) {
      String missing =
          hadoopConf == null
              ? "no Hadoop configuration"
              : "a Hadoop configuration without " + HoldfastConf.RUN_ID_KEY;
      throw new IllegalArgumentException(
          String.format(
              "The state store provider of %s was given %s: it names the run of the query and the"
                  + " storage of its files. StateStoreProvider.createAndInit sets it.",
              id, missing));
    }
  }

  private static void requireFormat(StateStoreConf conf) {
    if (!conf.enableStateStoreCheckpointIds()) {
      throw new UnsupportedStateException(
          HoldfastConf.formatTooOld(conf.sqlConfs().getOrElse(HoldfastConf.FORMAT_KEY, () -> "1")));
    }
  }

  @Override
  public StateStoreId stateStoreId() {
    return id;
  }

  public NativeStore nativeStore() {
    return nativeStore;
  }

  @Override
  public StateStore open(long version, Option<String> checkpointId, boolean empty) {
    return loading(
        version,
        () -> {
          HoldfastReadStore read =
              open(
                  version,
                  () -> {
                    if (empty) {
                      nativeStore.openEmpty(version);
                      return null;
                    }
                    return load(version, checkpointId);
                  });
          opened = null;
          StateStore store = read.write(checkpointId);
          ofReader = isReader() ? store : null;
          return store;
        });
  }

  @Override
  public ReadStateStore getReadStore(long version, Option<String> checkpointId) {
    return loading(version, () -> open(version, () -> load(version, checkpointId)));
  }

  /** Loads a version. Returns its id if it is a view, whose rows are to be put in; else null. */
  private String load(long version, Option<String> checkpointId) {
    String found = idOf(version, checkpointId);
    if (found == null && version > 0 && isReader() && context.lacksPartition(version)) {
      nativeStore.openEmpty(version);
    } else if (!ViewId.is(found)) {
      nativeStore.load(version, found);
    } else if (!nativeStore.isFilled(found)) {
      nativeStore.openEmpty(version);
      return found;
    }
    return null;
  }

  /**
   * The id of a version. Spark gives it, except in state readers of Spark 4.0: the commit log has
   * it for them. A running query without an id has another format or provider, and is refused.
   */
  private String idOf(long version, Option<String> given) {
    if (!isReader() || version == 0) {
      return given.getOrElse(() -> null);
    }
    String found = given.getOrElse(() -> ownId(version));
    long[] pending = found == null ? new long[0] : Native.pendingVersions(found);
    if (pending.length > 0) {
      LOG.warn(
          "The state of {} lacks rows since batch {}: the partition is parked, and rows of {}"
              + " batches wait. 'holdfast parked CHECKPOINT' shows why.",
          nativeStore,
          pending[0] - 1,
          pending.length);
    }
    return found;
  }

  private String ownId(long version) {
    String[] ids = context.idsOfVersion(version);
    return Arrays.stream(ids)
        .filter(found -> ViewId.is(found))
        .filter(view -> ViewId.parse(view).store().equals(id.storeName()))
        .findFirst()
        .orElseGet(() -> nativeStore.ownId(version, ids));
  }

  /** Returns true if this task belongs to a state reader, and not to a query. */
  private static boolean isReader() {
    TaskContext task = TaskContext.get();
    return task != null && task.getLocalProperty(HoldfastConf.BATCH_ID_KEY) == null;
  }

  @Override
  public StateStore upgrade(ReadStateStore readStore, long version, Option<String> checkpointId) {
    boolean same = readStore.id().equals(id) && readStore.version() == version;
    if (!(readStore instanceof HoldfastReadStore read) || !same) {
      throw new IllegalArgumentException(
          "Cannot upgrade " + readStore + " to version " + version + " of " + nativeStore);
    }
    opened = null;
    // The store may belong to another provider, if Spark closed that one and made this one.
    return loading(version, () -> read.write(checkpointId));
  }

  @Override
  public StateStore replay(
      long snapshotVersion, long endVersion, Option<String> snapshotId, Option<String> endId) {
    return loading(
        Math.min(snapshotVersion, endVersion),
        () -> replayed(snapshotVersion, endVersion, snapshotId, endId).write(endId));
  }

  @Override
  public ReadStateStore replayForReading(
      long snapshotVersion, long endVersion, Option<String> snapshotId, Option<String> endId) {
    return loading(
        Math.min(snapshotVersion, endVersion),
        () -> replayed(snapshotVersion, endVersion, snapshotId, endId));
  }

  private HoldfastReadStore replayed(
      long snapshotVersion, long endVersion, Option<String> snapshotId, Option<String> endId) {
    String[] ids =
        LongStream.rangeClosed(snapshotVersion + 1, endVersion)
            .mapToObj(context::idsOfVersion)
            .flatMap(Arrays::stream)
            .toArray(String[]::new);
    return open(
        endVersion,
        () -> {
          String end = idOf(endVersion, endId);
          if (end == null) {
            throw new UnsupportedStateException(HoldfastConf.formatTooOld("1"));
          }
          nativeStore.replay(snapshotVersion, idOf(snapshotVersion, snapshotId), end, ids);
          return null;
        });
  }

  @Override
  public NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>> changes(
      long startVersion, long endVersion, Option<String> columnFamily, Option<String> endId) {
    String name = columnFamily.getOrElse(StateStore::DEFAULT_COL_FAMILY_NAME);
    SparkErrors.requireFamilyName("getStateStoreChangeDataReader", name, context.columns);
    FamilySpec family = context.families.get(name);
    if (family == null) {
      throw SparkErrors.missingFamily("getStateStoreChangeDataReader", name);
    }
    SparkErrors.requireVersion(startVersion);
    getReadStore(endVersion, endId);
    int number = context.columns ? nativeStore.findFamily(name) : Native.ONLY_FAMILY;
    return new ChangeFeed(context, nativeStore, family, number, startVersion, endVersion);
  }

  /** Throws exceptions of Spark's own providers, with Holdfast's failure as their cause. */
  private <T> T loading(long version, Supplier<T> load) {
    SparkErrors.requireVersion(version);
    try {
      return load.get();
    } catch (Exception e) {
      throw SparkErrors.cannotLoad(id, e);
    }
  }

  /** {@code position} returns the id of a view whose rows are missing, or null. */
  private HoldfastReadStore open(long version, Supplier<String> position) {
    nativeStore.acquire();
    try {
      // The readers of Spark 4.0 open a store of transformWithState for changes, to describe its
      // column families, and do not close it before they read. A task whose job was started in a
      // thread of foreachBatch looks like a reader, and has committed.
      if (ofReader != null && isReader() && !ofReader.hasCommitted()) {
        ofReader.abort();
      }
      ofReader = null;
      nativeStore.follow(HoldfastExecutor.running().replayOf(TaskContext.get(), id.partitionId()));
      TimedStats statsBefore = statsBefore();
      String view = position.get();
      HoldfastReadStore read = new HoldfastReadStore(context, nativeStore, version, statsBefore);
      if (view != null) {
        ViewId parsed = ViewId.parse(view);
        PartitionView.copyInto(
            read.fill(), id, parsed, context.conf, context.hadoopConf, context.runId());
        nativeStore.setFilled(view);
      }
      return read;
    } catch (RuntimeException e) {
      nativeStore.releaseOutsideTask();
      throw e;
    }
  }

  /**
   * The counters that the metrics of a store begin at. Spark 4.0 opens a version for reading and
   * then again for changes. Only the second is asked for metrics, which include the first's loads.
   */
  private TimedStats statsBefore() {
    TaskContext task = TaskContext.get();
    if (task == null) {
      return nativeStore.stats();
    }
    if (opened == null || opened.task() != task.taskAttemptId()) {
      opened = new OpenedForReading(task.taskAttemptId(), nativeStore.stats());
    }
    return opened.statsBefore();
  }

  /** Tells Spark's coordinator about a version that is as good as a snapshot. */
  private void report(long version) {
    // The coordinator takes a store for late if it is five times as far back.
    boolean due = version >= reportedVersion + context.conf.minDeltasForSnapshot();
    if (due && SparkCalls.wantsSnapshots(context.conf)) {
      reportedVersion = version;
      SparkCalls.reportSnapshot(id, context.runId(), version);
    }
  }

  /** Called by maintenance, or at the end of a task if {@code unloadOnCommit} is on. */
  @Override
  public void doMaintenance() {
    nativeStore.maintain();
  }

  @Override
  public void close() {
    if (nativeStore != null) {
      nativeStore.close();
    }
  }

  @Override
  public Seq<StateStoreCustomMetric> supportedCustomMetrics() {
    boolean parked =
        HoldfastDriver.started().map(one -> one.decisions().showsMetrics()).orElse(false);
    return CollectionConverters.asScala(StoreMetrics.all(parked)).toSeq();
  }
}
