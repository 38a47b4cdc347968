package io.holdfast.spark.store;

import io.holdfast.spark.Native;
import java.io.InputStream;
import java.util.Objects;

/** Reads the input of one parked batch. Every byte was verified before it is returned. */
final class PendingInput extends InputStream {
  private static final int MAX_BYTES = 1 << 20;

  private final long reading;
  private byte[] bytes = new byte[0];
  private int position;

  PendingInput(long reading) {
    this.reading = reading;
  }

  @Override
  public int read() {
    return isOver() ? -1 : bytes[position++] & 0xff;
  }

  @Override
  public int read(byte[] target, int offset, int length) {
    Objects.checkFromIndexSize(offset, length, target.length);
    if (length == 0) {
      return 0;
    }
    if (isOver()) {
      return -1;
    }
    int count = Math.min(length, bytes.length - position);
    System.arraycopy(bytes, position, target, offset, count);
    position += count;
    return count;
  }

  private boolean isOver() {
    if (position == bytes.length) {
      bytes = Native.readPending(reading, MAX_BYTES);
      position = 0;
    }
    return bytes.length == 0;
  }

  @Override
  public void close() {
    Native.closePending(reading);
  }
}
