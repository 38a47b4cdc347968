package io.holdfast.spark.moves;

import java.util.Iterator;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/** The rows of a column family whose keys have several values, one for each value. */
final class AllValues implements Iterator<UnsafeRowPair> {
  private final ReadStateStore store;
  private final String family;
  private final StateStoreIterator<UnsafeRowPair> keys;
  private final UnsafeRowPair row = new UnsafeRowPair(null, null);
  private UnsafeRow key;
  private scala.collection.Iterator<UnsafeRow> values;

  private AllValues(ReadStateStore store, String family) {
    this.store = store;
    this.family = family;
    keys = store.iterator(family);
  }

  static StateStoreIterator<UnsafeRowPair> of(ReadStateStore store, String family) {
    AllValues all = new AllValues(store, family);
    return new StateStoreIterator<>(
        CollectionConverters.asScala(all),
        () -> {
          all.keys.close();
          return BoxedUnit.UNIT;
        });
  }

  @Override
  public boolean hasNext() {
    while ((values == null || !values.hasNext()) && keys.hasNext()) {
      key = keys.next().key();
      values = store.valuesIterator(key, family);
    }
    return values != null && values.hasNext();
  }

  @Override
  public UnsafeRowPair next() {
    return row.withRows(key, values.next());
  }
}
