package io.holdfast.spark.store;

import io.holdfast.spark.Native;

/** One column family as Spark described it, with options such as {@link Native#ORDERED}. */
public record FamilySpec(String name, RowForm key, RowForm value, int options) {
  boolean hasSeveralValues() {
    return (options & Native.SEVERAL_VALUES) != 0;
  }
}
