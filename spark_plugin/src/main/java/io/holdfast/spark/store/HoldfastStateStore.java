package io.holdfast.spark.store;

import io.holdfast.spark.executor.ManagerTotals;
import io.holdfast.spark.minor.SparkCalls;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** One session: version N, changed in place, becomes version N + 1 at commit. */
final class HoldfastStateStore extends OpenedVersion implements StateStore {
  private final Option<String> baseId;
  private String committedId;
  private StateStoreMetrics metrics;

  HoldfastStateStore(OpenedVersion read, Option<String> baseId) {
    super(read);
    this.baseId = baseId;
  }

  @Override
  public void put(UnsafeRow key, UnsafeRow value, String columnFamily) {
    session.requireOpen();
    SparkErrors.verify(key != null, "Key cannot be null");
    SparkErrors.require(value != null, "Cannot put a null value");
    family("put", columnFamily).put(key, value);
  }

  public void putList(UnsafeRow key, UnsafeRow[] values, String columnFamily) {
    session.requireOpen();
    SparkErrors.verify(key != null, "Key cannot be null");
    requireValues(values, "put");
    StoreFamily family = family("put", columnFamily);
    family.requireLists("put");
    family.writeList(key, false, values);
  }

  @Override
  public void merge(UnsafeRow key, UnsafeRow value, String columnFamily) {
    StoreFamily family = family("merge", columnFamily);
    family.requireLists("merge");
    SparkErrors.verify(key != null, "Key cannot be null");
    SparkErrors.require(value != null, "Cannot merge a null value");
    family.writeList(key, true, value);
  }

  public void mergeList(UnsafeRow key, UnsafeRow[] values, String columnFamily) {
    StoreFamily family = family("merge", columnFamily);
    family.requireLists("merge");
    SparkErrors.verify(key != null, "Key cannot be null");
    requireValues(values, "merge");
    family.writeList(key, true, values);
  }

  @Override
  public void remove(UnsafeRow key, String columnFamily) {
    family("remove", columnFamily, key).remove(key);
  }

  /** Removes entries from {@code from} (inclusive) to {@code to} (exclusive). */
  public void deleteRange(UnsafeRow from, UnsafeRow to, String columnFamily) {
    session.requireOpen();
    SparkErrors.verify(from != null, "Begin key cannot be null");
    SparkErrors.verify(to != null, "End key cannot be null");
    StoreFamily family = family("deleteRange", columnFamily);
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

  /** Durable against the executor's death on return; against the machine's at commits/N. */
  @Override
  public long commit() {
    session.requireUncommitted();
    try {
      committedId = nativeStore.commit();
      session.commit();
      nativeStore.releaseOutsideTask();
      if (committedId != null) {
        SparkCalls.reportCommit(context.conf, context.id, version() + 1, context.hadoopConf);
      }
    } catch (Exception e) {
      throw SparkErrors.cannotCommit(this, e);
    }
    return version() + 1;
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
      // Spark reports only the memory of these stores (SymmetricHashJoinStateManager).
      boolean isLeftOut = context.id.storeName().endsWith("-keyToNumValues");
      // Read once: the manager gives each of its counts to one caller only.
      ManagerTotals totals = isLeftOut ? ManagerTotals.NOTHING : nativeStore.takeTotals(version());
      metrics = StoreMetrics.of(statsBefore, nativeStore.stats(), totals);
    }
    return metrics;
  }

  @Override
  public StateStoreCheckpointInfo getStateStoreCheckpointInfo() {
    session.requireId();
    return new StateStoreCheckpointInfo(
        context.id.partitionId(), version() + 1, Option.apply(committedId), baseId);
  }

  @Override
  public String toString() {
    return "Holdfast's " + super.toString();
  }

  private static void requireValues(UnsafeRow[] values, String operation) {
    SparkErrors.require(values != null, "Cannot " + operation + " a null value");
    for (UnsafeRow value : values) {
      SparkErrors.require(value != null, "Cannot " + operation + " a null value in the array");
    }
  }

  @Override
  public void createColFamilyIfAbsent(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec keySpec,
      boolean severalValues,
      boolean internal) {
    super.registerColFamily(name, keySchema, valueSchema, keySpec, severalValues, internal);
    // The family is part of the version from now on, even without an entry.
    nativeStore.openFamily(name, context.families.get(name).options());
  }

  @Override
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
      // A family that is made again may have another form.
      context.families.remove(name);
      forget(name);
    }
    return removed;
  }
}
