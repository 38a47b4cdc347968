package io.holdfast.spark;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Set;
import scala.collection.immutable.Set$;
import scala.runtime.BoxedUnit;

/** One version of a store, for reading. Returned rows are reused, the bytes behind them are not. */
final class HoldfastReadStore implements ReadStateStore {
  private final StoreContext context;
  private final TableHandle table;
  private final long version;
  private final UnsafeRow found;
  private final long[] statsBefore;

  /**
   * @param statsBefore counters of the table before this version was opened
   */
  HoldfastReadStore(StoreContext context, TableHandle table, long version, long[] statsBefore) {
    this.context = context;
    this.table = table;
    this.version = version;
    this.statsBefore = statsBefore;
    found = new UnsafeRow(context.valueSchema.length());
  }

  long[] statsBefore() {
    return statsBefore;
  }

  @Override
  public String toString() {
    return "version " + version + " of " + table;
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
    requireDefaultFamily(columnFamily);
    return table.get(key, found) ? found : null;
  }

  @Override
  public boolean keyExists(UnsafeRow key, String columnFamily) {
    requireDefaultFamily(columnFamily);
    return table.contains(key);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iterator(String columnFamily) {
    requireDefaultFamily(columnFamily);
    return new StateStoreIterator<>(
        new Entries(
            table.scan(), context.keySchema.length(), context.valueSchema.length()),
        () -> BoxedUnit.UNIT);
  }

  private static final class Entries extends AbstractIterator<UnsafeRowPair> {
    private final TableHandle.Scan scan;
    private final UnsafeRow key;
    private final UnsafeRow value;
    private final UnsafeRowPair pair;

    Entries(TableHandle.Scan scan, int keyFields, int valueFields) {
      this.scan = scan;
      key = new UnsafeRow(keyFields);
      value = new UnsafeRow(valueFields);
      pair = new UnsafeRowPair(key, value);
    }

    @Override
    public boolean hasNext() {
      return scan.hasNext();
    }

    @Override
    public UnsafeRowPair next() {
      if (!scan.hasNext()) {
        throw new java.util.NoSuchElementException("the scan is over");
      }
      scan.next(key, value);
      return pair.withRows(key, value);
    }
  }

  @Override
  public Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String columnFamily) {
    throw Messages.notServed("several values per key");
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String columnFamily) {
    throw Messages.notServed("prefix scans");
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(
      UnsafeRow prefix, String columnFamily) {
    throw Messages.notServed("prefix scans");
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String columnFamily) {
    throw Messages.notServed("several values per key");
  }

  @Override
  public Set<String> allColumnFamilyNames() {
    return Set$.MODULE$.<String>empty().incl(StateStore.DEFAULT_COL_FAMILY_NAME());
  }

  @Override
  public void abort() {
    release();
  }

  @Override
  public void release() {
    table.releaseOutsideTask();
  }

  static void requireDefaultFamily(String columnFamily) {
    if (!StateStore.DEFAULT_COL_FAMILY_NAME().equals(columnFamily)) {
      throw Messages.notServed("column family '" + columnFamily + "'");
    }
  }
}
