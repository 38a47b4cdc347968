package io.holdfast.spark.store;

import java.util.Arrays;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;

/** A range of bytes on the way to native memory; {@code base} is null outside the heap. */
record Bytes(Object base, long offset, int length) {
  static Bytes of(UnsafeRow row) {
    return new Bytes(row.getBaseObject(), row.getBaseOffset(), row.getSizeInBytes());
  }

  static Bytes of(byte[] bytes) {
    return new Bytes(bytes, Platform.BYTE_ARRAY_OFFSET, bytes.length);
  }

  void copyTo(long address) {
    Platform.copyMemory(base, offset, null, address, length);
  }

  /** Exactly these bytes, without a copy if they are an array already. */
  byte[] toArray() {
    if (base instanceof byte[] bytes
        && offset == Platform.BYTE_ARRAY_OFFSET
        && bytes.length == length) {
      return bytes;
    }
    byte[] copy = new byte[length];
    Platform.copyMemory(base, offset, copy, Platform.BYTE_ARRAY_OFFSET, length);
    return copy;
  }

  static byte[] slice(byte[] bytes, int at, int length) {
    return at == 0 && length == bytes.length ? bytes : Arrays.copyOfRange(bytes, at, at + length);
  }
}
