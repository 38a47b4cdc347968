package io.holdfast.spark.moves;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;

/** Reads the rows of a store, one column family after the other, with one row in memory. */
final class RowReader implements AutoCloseable {
  private final TaskContext task = TaskContext.get();
  private final ReadStateStore store;
  private final Operator.Store form;
  private final long limit;
  private final KeyCount keys = new KeyCount();
  private int number = -1;
  private long left;
  private StateStoreIterator<UnsafeRowPair> pairs;
  private UnsafeRowPair pair;
  private UnsafeRow lastKey;
  private boolean first;

  /** The limit is on the rows of each column family. */
  RowReader(ReadStateStore store, Operator.Store form, long limit) {
    this.store = store;
    this.form = form;
    this.limit = limit;
  }

  /** The next row is valid until the call after it. Returns false at the end. */
  boolean next() {
    while (pairs == null || left == 0 || !pairs.hasNext()) {
      close();
      number++;
      if (number == form.families().size()) {
        if (limit == Long.MAX_VALUE) {
          keys.require(store);
        }
        return false;
      }
      pairs =
          family().severalValues()
              ? AllValues.of(store, family().name())
              : store.iterator(family().name());
      left = limit;
    }
    task.killTaskIfInterrupted();
    pair = pairs.next();
    left--;
    boolean several = family().severalValues();
    first = !several || !pair.key().equals(lastKey);
    if (first) {
      lastKey = several ? pair.key().copy() : null;
      keys.add(family());
    }
    return true;
  }

  /** The number of the row's column family. */
  int number() {
    return number;
  }

  Operator.Family family() {
    return form.families().get(number);
  }

  /** Returns true for the first value of a key. Others follow it. */
  boolean isFirst() {
    return first;
  }

  UnsafeRow key() {
    return pair.key();
  }

  UnsafeRow value() {
    return pair.value();
  }

  long bytes() {
    return key().getSizeInBytes() + value().getSizeInBytes();
  }

  void writeTo(RowWriter writer) {
    writer.write(family(), first, key(), value());
  }

  @Override
  public void close() {
    if (pairs != null) {
      pairs.close();
      pairs = null;
      lastKey = null;
    }
  }
}
