package io.holdfast.spark.files;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;

/** A file that is being read. The native side closes it. */
final class HadoopInput {
  private final FSDataInputStream in;
  private final long length;

  HadoopInput(FSDataInputStream in, long length) {
    this.in = in;
    this.length = length;
  }

  long length() {
    return length;
  }

  byte[] read(long position, int bytes) throws IOException {
    byte[] into = new byte[bytes];
    in.readFully(position, into);
    return into;
  }

  void close() throws IOException {
    in.close();
  }
}
