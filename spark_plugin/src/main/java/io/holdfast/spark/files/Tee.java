package io.holdfast.spark.files;

import java.io.IOException;
import java.io.OutputStream;

/** Writes everything twice; what is flushed is the first of the two. */
public final class Tee extends OutputStream {
  private final OutputStream first;
  private final OutputStream second;

  public Tee(OutputStream first, OutputStream second) {
    this.first = first;
    this.second = second;
  }

  @Override
  public void write(int b) throws IOException {
    first.write(b);
    second.write(b);
  }

  @Override
  public void write(byte[] bytes, int from, int length) throws IOException {
    first.write(bytes, from, length);
    second.write(bytes, from, length);
  }

  @Override
  public void flush() throws IOException {
    first.flush();
  }
}
