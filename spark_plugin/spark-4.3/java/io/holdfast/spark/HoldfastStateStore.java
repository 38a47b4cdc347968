package io.holdfast.spark;

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
  private enum Phase {
    OPEN,
    COMMITTED,
    ABORTED
  }

  private final StoreContext context;
  private final TableHandle table;
  private final HoldfastReadStore read;
  private final long version;
  private final Option<String> baseId;
  private Phase phase = Phase.OPEN;
  private String committedId;
  private StateStoreMetrics metrics;

  HoldfastStateStore(
      StoreContext context,
      TableHandle table,
      HoldfastReadStore read,
      long version,
      Option<String> baseId) {
    this.context = context;
    this.table = table;
    this.read = read;
    this.version = version;
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

  @Override
  public boolean keyExists(UnsafeRow key, String columnFamily) {
    return read.keyExists(key, columnFamily);
  }

  @Override
  public void put(UnsafeRow key, UnsafeRow value, String columnFamily) {
    forWriting(columnFamily).put(key, value);
  }

  @Override
  public void putList(UnsafeRow key, UnsafeRow[] values, String columnFamily) {
    forWriting(columnFamily).putList(key, values);
  }

  @Override
  public void merge(UnsafeRow key, UnsafeRow value, String columnFamily) {
    forWriting(columnFamily).append(key, value);
  }

  @Override
  public void mergeList(UnsafeRow key, UnsafeRow[] values, String columnFamily) {
    forWriting(columnFamily).append(key, values);
  }

  @Override
  public void remove(UnsafeRow key, String columnFamily) {
    forWriting(columnFamily).remove(key);
  }

  /** Entries from {@code from} (inclusive) to {@code to} (exclusive) go. */
  @Override
  public void deleteRange(UnsafeRow from, UnsafeRow to, String columnFamily) {
    StoreFamily family = forWriting(columnFamily);
    StateStoreIterator<UnsafeRowPair> doomed = family.range(from, to, false);
    try {
      while (doomed.hasNext()) {
        family.remove(doomed.next().key());
      }
    } finally {
      doomed.close();
    }
  }

  /** The whole family; also after commit, which is when complete mode reads it. */
  @Override
  public StateStoreIterator<UnsafeRowPair> iterator(String columnFamily) {
    return read.iterator(columnFamily);
  }

  /** Durable against the executor's death on return; against the machine's at commits/N. */
  @Override
  public long commit() {
    requireOpen();
    committedId = table.commit();
    phase = Phase.COMMITTED;
    table.releaseOutsideTask();
    if (context.conf.commitValidationEnabled()) {
      StateStore.reportCommitToCoordinator(version + 1, context.id, context.hadoopConf);
    }
    return version + 1;
  }

  @Override
  public void abort() {
    if (phase == Phase.OPEN) {
      phase = Phase.ABORTED;
      table.abort();
    }
    table.releaseOutsideTask();
  }

  @Override
  public void release() {
    if (phase == Phase.OPEN) {
      throw new IllegalStateException(
          "A session of " + table + " must be committed or aborted, not released");
    }
    table.releaseOutsideTask();
  }

  @Override
  public boolean hasCommitted() {
    return phase == Phase.COMMITTED;
  }

  @Override
  public StateStoreMetrics metrics() {
    if (phase == Phase.OPEN) {
      return StoreMetrics.of(read.statsBefore(), table.stats(), StoreMetrics.NOTHING);
    }
    if (metrics == null) {
      // Taken once: what the manager did is told to one caller only.
      metrics = StoreMetrics.of(read.statsBefore(), table.stats(), table.takeTotals(version));
    }
    return metrics;
  }

  @Override
  public StateStoreCheckpointInfo getStateStoreCheckpointInfo() {
    if (phase != Phase.COMMITTED) {
      throw new IllegalStateException(
          "Version " + (version + 1) + " of " + table + " has no id yet");
    }
    return new StateStoreCheckpointInfo(
        context.id.partitionId(), version + 1, Option.apply(committedId), baseId);
  }

  private StoreFamily forWriting(String columnFamily) {
    requireOpen();
    return read.family(columnFamily);
  }

  private void requireOpen() {
    if (phase != Phase.OPEN) {
      throw new IllegalStateException("The session of " + table + " is " + phase);
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

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(
      UnsafeRow prefix, String columnFamily) {
    return read.prefixScanWithMultiValues(prefix, columnFamily);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String columnFamily) {
    return read.iteratorWithMultiValues(columnFamily);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> rangeScan(
      Option<UnsafeRow> from, Option<UnsafeRow> to, String columnFamily) {
    return read.rangeScan(from, to, columnFamily);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> rangeScanWithMultiValues(
      Option<UnsafeRow> from, Option<UnsafeRow> to, String columnFamily) {
    return read.rangeScanWithMultiValues(from, to, columnFamily);
  }

  @Override
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
    requireOpen();
    context.register(name, valueSchema, keySpec, severalValues, internal);
  }

  @Override
  public boolean removeColFamilyIfExists(String name) {
    requireOpen();
    boolean stored = context.columns && table.removeFamily(name);
    boolean described = context.families.remove(name) != null;
    read.forget(name);
    return stored || described;
  }
}
