package io.holdfast.spark.store;

import io.holdfast.spark.Native;

/**
 * One column family as Spark described it.
 *
 * @param key how keys become bytes
 * @param value how values become bytes
 * @param options {@link Native#ORDERED} and the like
 */
public record FamilySpec(String name, RowForm key, RowForm value, int options) {
  boolean hasSeveralValues() {
    return (options & Native.SEVERAL_VALUES) != 0;
  }
}
