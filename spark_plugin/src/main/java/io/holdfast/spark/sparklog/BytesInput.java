package io.holdfast.spark.sparklog;

import java.io.EOFException;
import org.apache.hadoop.fs.FSInputStream;

/** Reads a file whose content is in memory. */
final class BytesInput extends FSInputStream {
  private final byte[] content;
  private int at;

  BytesInput(byte[] content) {
    this.content = content;
  }

  @Override
  public int read() {
    return at < content.length ? content[at++] & 0xff : -1;
  }

  @Override
  public int read(byte[] bytes, int from, int length) {
    if (length == 0) {
      return 0;
    }
    int read = Math.min(length, content.length - at);
    if (read == 0) {
      return -1;
    }
    System.arraycopy(content, at, bytes, from, read);
    at += read;
    return read;
  }

  @Override
  public int available() {
    return content.length - at;
  }

  @Override
  public void seek(long position) throws EOFException {
    if (position < 0 || position > content.length) {
      throw new EOFException("no byte " + position + " of " + content.length);
    }
    at = (int) position;
  }

  @Override
  public long getPos() {
    return at;
  }

  @Override
  public boolean seekToNewSource(long target) {
    return false;
  }
}
