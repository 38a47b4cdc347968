package io.holdfast.spark.moves;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/** Puts rows into a store: the first value of a key is put, and others are merged. */
final class RowWriter implements AutoCloseable {
  private final StateStore store;
  private final KeyCount keys = new KeyCount();

  RowWriter(StateStore store) {
    this.store = store;
  }

  /** The first value of a key is written first, and its others follow. */
  void write(Operator.Family family, boolean first, UnsafeRow key, UnsafeRow value) {
    if (first) {
      store.put(key, value, family.name());
      keys.add(family);
    } else {
      store.merge(key, value, family.name());
    }
  }

  /** Returns the id of the store, which has all keys that were written, or null without one. */
  String commit() {
    keys.require(store);
    store.commit();
    return store.getStateStoreCheckpointInfo().stateStoreCkptId().getOrElse(() -> null);
  }

  @Override
  public void close() {
    if (!store.hasCommitted()) {
      store.abort();
    }
  }
}
