package io.holdfast.bench;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;

/**
 * The rows of the store benchmark, made from numbers: a key of two longs and a value of three.
 * Returned rows are reused, as Spark's operators reuse theirs.
 */
final class Rows {
  static final StructType KEY = longs("group", "number");
  static final StructType VALUE = longs("first", "second", "third");

  private static final long MIX = 0x9E3779B97F4A7C15L;

  private final long groupSize;
  private final UnsafeRow key = row(2);
  private final UnsafeRow prefix = row(1);
  private final UnsafeRow value = row(3);

  /**
   * @param groupSize keys that share their first column
   */
  Rows(long groupSize) {
    this.groupSize = groupSize;
  }

  UnsafeRow key(long number) {
    key.setLong(0, mixed(number / groupSize));
    key.setLong(1, number);
    return key;
  }

  /** The first column of a group's keys. */
  UnsafeRow prefix(long group) {
    prefix.setLong(0, mixed(group));
    return prefix;
  }

  UnsafeRow value(long number) {
    value.setLong(0, number);
    value.setLong(1, mixed(number));
    value.setLong(2, ~number);
    return value;
  }

  /** Reads every field of a value. */
  static long read(UnsafeRow value) {
    return value.getLong(0) ^ value.getLong(1) ^ value.getLong(2);
  }

  /** Returns the number that {@link #read} makes of {@code value(number)}. */
  static long expected(long number) {
    return number ^ mixed(number) ^ ~number;
  }

  /** Spreads neighbouring numbers over all longs. */
  private static long mixed(long number) {
    return number * MIX;
  }

  private static StructType longs(String... names) {
    StructType type = new StructType();
    for (String name : names) {
      type = type.add(name, DataTypes.LongType, false);
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
