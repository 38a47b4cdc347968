package io.holdfast.spark.store;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

/** A range of bytes on the heap or outside it, on its way to native memory. */
final class Bytes {
  private final Object base;
  private final long offset;
  final int length;

  private Bytes(Object base, long offset, int length) {
    this.base = base;
    this.offset = offset;
    this.length = length;
  }

  /** The bytes of a row as they are. */
  static Bytes of(UnsafeRow row) {
    return new Bytes(row.getBaseObject(), row.getBaseOffset(), row.getSizeInBytes());
  }

  static Bytes of(byte[] bytes) {
    return new Bytes(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
  }

  void copyTo(long address) {
    Platform.copyMemory(base, offset, null, address, length);
  }

  /** An array with exactly these bytes; the array itself where it is one. */
  byte[] toArray() {
    boolean whole =
        base instanceof byte[]
            && offset == Platform.BYTE_ARRAY_OFFSET
            && ((byte[]) base).length == length;
    if (whole) {
      return (byte[]) base;
    }
    byte[] copy = new byte[length];
    Platform.copyMemory(base, offset, copy, Platform.BYTE_ARRAY_OFFSET, length);
    return copy;
  }

  static byte[] slice(byte[] bytes, int at, int length) {
    return at == 0 && length == bytes.length ? bytes : Arrays.copyOfRange(bytes, at, at + length);
  }
}
