package io.holdfast.spark.staging;

import java.io.EOFException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;

/** A range of a local file. It has marks, because clients that retry read it again from a mark. */
final class LocalRange extends InputStream {
  private final FileChannel file;
  private final long end;
  private long position;
  private long mark;

  LocalRange(FileChannel file, long start, long bytes) {
    this.file = file;
    position = start;
    mark = start;
    end = start + bytes;
  }

  @Override
  public int read() throws IOException {
    byte[] one = new byte[1];
    return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
  }

  @Override
  public int read(byte[] into, int from, int length) throws IOException {
    if (length == 0) {
      return 0;
    }
    if (position == end) {
      return -1;
    }
    int wanted = (int) Math.min(length, end - position);
    int found = file.read(ByteBuffer.wrap(into, from, wanted), position);
    if (found < 0) {
      throw new EOFException("the file was cut at " + position + " while it was read");
    }
    position += found;
    return found;
  }

  @Override
  public int available() {
    return (int) Math.min(Integer.MAX_VALUE, end - position);
  }

  @Override
  public boolean markSupported() {
    return true;
  }

  @Override
  public synchronized void mark(int readLimit) {
    mark = position;
  }

  @Override
  public synchronized void reset() {
    position = mark;
  }
}
