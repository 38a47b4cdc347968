package io.holdfast.spark.moves;

import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;

/** The rows of a column family whose keys have several values, one for each value. */
final class AllValues {
  private AllValues() {}

  static StateStoreIterator<UnsafeRowPair> of(ReadStateStore store, String family) {
    return store.iteratorWithMultiValues(family);
  }
}
