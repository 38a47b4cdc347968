package io.holdfast.spark.moves;

import io.holdfast.spark.DamagedStateException;
import io.holdfast.spark.store.OpenedVersion;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;

/** The keys that were read from a store, or put into it. */
final class KeyCount {
  private long users;
  private long all;

  void add(Operator.Family family) {
    all++;
    if (!family.internal()) {
      users++;
    }
  }

  /** Throws {@link DamagedStateException} if a store of Holdfast counts other keys. */
  void require(ReadStateStore store) {
    if (!(store instanceof OpenedVersion opened)) {
      return;
    }
    long counted = opened.keys();
    // Joins that an earlier build adopted count their indexes, too.
    if (counted != users && counted != all) {
      throw new DamagedStateException(
          String.format(
              "%s has %d keys, but %d of them were copied. Nothing was changed.",
              store.id(), counted, users));
    }
  }
}
