package io.holdfast.bench;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * Rows made from numbers, with keys of 16 bytes and values of 96: the key's number, a count, and ten
 * columns of which half are noise and half are small numbers. Returned rows are reused, as Spark's
 * operators reuse theirs.
 */
final class WideRows {
  static final StructType KEY = longs(2);
  static final StructType VALUE = longs(12);

  private static final long MIX = 0x9E3779B97F4A7C15L;
  private static final int SMALL = 1000;

  private final UnsafeRow key = row(KEY.length());
  private final UnsafeRow value = row(VALUE.length());

  UnsafeRow key(long number) {
    key.setLong(0, number * MIX);
    key.setLong(1, number);
    return key;
  }

  UnsafeRow value(long number, long count) {
    value.setLong(0, number);
    value.setLong(1, count);
    for (int column = 2; column < VALUE.length(); column++) {
      long seed = number + (long) column * SMALL;
      value.setLong(column, column % 2 == 0 ? noise(seed) : seed % SMALL);
    }
    return value;
  }

  /** The count in the value of a key, if it is that of the key. */
  long count(long number, UnsafeRow found) {
    OneStore.require("number of a key that is there", number, found == null ? -1 : found.getLong(0));
    return found.getLong(1);
  }

  /** A bijection of the longs (Stafford's variant 13 of a mixer) that leaves nothing to compress. */
  private static long noise(long seed) {
    long z = (seed ^ (seed >>> 30)) * 0xBF58476D1CE4E5B9L;
    z = (z ^ (z >>> 27)) * 0x94D049BB133111EBL;
    return z ^ (z >>> 31);
  }

  private static StructType longs(int columns) {
    StructType type = new StructType();
    for (int column = 0; column < columns; column++) {
      type = type.add("column" + column, DataTypes.LongType, false);
    }
    return type;
  }

  private static UnsafeRow row(int fields) {
    UnsafeRow row = new UnsafeRow(fields);
    int bytes = UnsafeRow.calculateBitSetWidthInBytes(fields) + fields * Long.BYTES;
    row.pointTo(new byte[bytes], bytes);
    return row;
  }
}
