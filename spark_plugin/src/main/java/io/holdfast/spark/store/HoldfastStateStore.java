package io.holdfast.spark.store;

import io.holdfast.spark.minor.SparkCalls;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Set;

/** One session: version N, changed in place, becomes version N + 1 at commit. */
final class HoldfastStateStore implements StateStore {
  private final StoreContext context;
  private final NativeStore nativeStore;
  private final HoldfastReadStore read;
  private final Session session;
  private final long version;
  private final Option<String> baseId;
  private String committedId;
  private StateStoreMetrics metrics;

  HoldfastStateStore(
      StoreContext context,
      NativeStore nativeStore,
      HoldfastReadStore read,
      Session session,
      Option<String> baseId) {
    this.context = context;
    this.nativeStore = nativeStore;
    this.read = read;
    this.session = session;
    version = read.version();
    this.baseId = baseId;
  }

  @Override
  public StateStoreId id() {
    return context.id;
  }

  @Override
  public long version() {
    return version;
  }

  @Override
  public UnsafeRow get(UnsafeRow key, String columnFamily) {
    return read.get(key, columnFamily);
  }

  public Iterator<UnsafeRow> multiGet(UnsafeRow[] keys, String columnFamily) {
    return read.multiGet(keys, columnFamily);
  }

  public boolean keyExists(UnsafeRow key, String columnFamily) {
    return read.keyExists(key, columnFamily);
  }

  @Override
  public void put(UnsafeRow key, UnsafeRow value, String columnFamily) {
    session.requireOpen();
    SparkErrors.verify(key != null, "Key cannot be null");
    SparkErrors.require(value != null, "Cannot put a null value");
    read.family("put", columnFamily).put(key, value);
  }

  public void putList(UnsafeRow key, UnsafeRow[] values, String columnFamily) {
    session.requireOpen();
    SparkErrors.verify(key != null, "Key cannot be null");
    requireValues(values, "put");
    StoreFamily family = read.family("put", columnFamily);
    family.requireLists("put");
    family.putList(key, values);
  }

  @Override
  public void merge(UnsafeRow key, UnsafeRow value, String columnFamily) {
    StoreFamily family = read.family("merge", columnFamily);
    family.requireLists("merge");
    SparkErrors.verify(key != null, "Key cannot be null");
    SparkErrors.require(value != null, "Cannot merge a null value");
    family.append(key, value);
  }

  public void mergeList(UnsafeRow key, UnsafeRow[] values, String columnFamily) {
    StoreFamily family = read.family("merge", columnFamily);
    family.requireLists("merge");
    SparkErrors.verify(key != null, "Key cannot be null");
    requireValues(values, "merge");
    family.append(key, values);
  }

  @Override
  public void remove(UnsafeRow key, String columnFamily) {
    read.family("remove", columnFamily, key).remove(key);
  }

  /** Entries from {@code from} (inclusive) to {@code to} (exclusive) go. */
  public void deleteRange(UnsafeRow from, UnsafeRow to, String columnFamily) {
    session.requireOpen();
    SparkErrors.verify(from != null, "Begin key cannot be null");
    SparkErrors.verify(to != null, "End key cannot be null");
    StoreFamily family = read.family("deleteRange", columnFamily);
    SparkErrors.verify(
        family.scansRanges(),
        "deleteRange requires a RangeKeyScanStateEncoderSpec for ordered key encoding");
    StateStoreIterator<UnsafeRowPair> doomed = family.range(from, to, false);
    try {
      while (doomed.hasNext()) {
        family.remove(doomed.next().key());
      }
    } finally {
      doomed.close();
    }
  }

  /** The whole family; it may be read on after commit, as complete mode does. */
  @Override
  public StateStoreIterator<UnsafeRowPair> iterator(String columnFamily) {
    return read.iterator(columnFamily);
  }

  /** Durable against the executor's death on return; against the machine's at commits/N. */
  @Override
  public long commit() {
    session.requireUncommitted();
    try {
      committedId = nativeStore.commit();
      session.commit();
      nativeStore.releaseOutsideTask();
      SparkCalls.reportCommit(context.conf, context.id, version + 1, context.hadoopConf);
    } catch (Exception e) {
      throw SparkErrors.cannotCommit(this, e);
    }
    return version + 1;
  }

  @Override
  public void abort() {
    if (session.abort()) {
      nativeStore.abort();
      nativeStore.releaseOutsideTask();
    }
  }

  public void release() {
    throw new AssertionError(
        "assertion failed: Release can only be called on a read-only store, not on " + this);
  }

  @Override
  public boolean hasCommitted() {
    return session.hasCommitted();
  }

  @Override
  public StateStoreMetrics metrics() {
    session.requireMetrics();
    if (metrics == null) {
      // Taken once: the manager hands each of its counts to one caller only.
      metrics =
          StoreMetrics.of(
              read.statsBefore(), nativeStore.stats(), nativeStore.takeTotals(version));
    }
    return metrics;
  }

  @Override
  public StateStoreCheckpointInfo getStateStoreCheckpointInfo() {
    session.requireId();
    return new StateStoreCheckpointInfo(
        context.id.partitionId(), version + 1, Option.apply(committedId), baseId);
  }

  @Override
  public String toString() {
    return "Holdfast's " + read;
  }

  private static void requireValues(UnsafeRow[] values, String operation) {
    SparkErrors.require(values != null, "Cannot " + operation + " a null value");
    for (UnsafeRow value : values) {
      SparkErrors.require(value != null, "Cannot " + operation + " a null value in the array");
    }
  }

  @Override
  public Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String columnFamily) {
    return read.valuesIterator(key, columnFamily);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String columnFamily) {
    return read.prefixScan(prefix, columnFamily);
  }

  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(
      UnsafeRow prefix, String columnFamily) {
    return read.prefixScanWithMultiValues(prefix, columnFamily);
  }

  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String columnFamily) {
    return read.iteratorWithMultiValues(columnFamily);
  }

  public StateStoreIterator<UnsafeRowPair> rangeScan(
      Option<UnsafeRow> from, Option<UnsafeRow> to, String columnFamily) {
    return read.rangeScan(from, to, columnFamily);
  }

  public StateStoreIterator<UnsafeRowPair> rangeScanWithMultiValues(
      Option<UnsafeRow> from, Option<UnsafeRow> to, String columnFamily) {
    return read.rangeScanWithMultiValues(from, to, columnFamily);
  }

  public Set<String> allColumnFamilyNames() {
    return read.allColumnFamilyNames();
  }

  @Override
  public void createColFamilyIfAbsent(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec keySpec,
      boolean severalValues,
      boolean internal) {
    read.registerColFamily(name, keySchema, valueSchema, keySpec, severalValues, internal);
    // Part of the version from now on, whatever is written to it.
    nativeStore.openFamily(name, context.families.get(name).options);
  }

  public void registerColFamily(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec keySpec,
      boolean severalValues,
      boolean internal) {
    createColFamilyIfAbsent(name, keySchema, valueSchema, keySpec, severalValues, internal);
  }

  @Override
  public boolean removeColFamilyIfExists(String name) {
    session.requireOpen();
    SparkErrors.requireNewFamilyName("remove_col_family", name, context.columns, false);
    boolean removed = nativeStore.removeFamily(name);
    if (removed) {
      // Made again, it may have another form.
      context.families.remove(name);
      read.forget(name);
    }
    return removed;
  }
}
