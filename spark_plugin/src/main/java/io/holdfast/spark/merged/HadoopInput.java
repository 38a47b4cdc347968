package io.holdfast.spark.merged;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataInputStream;

/** A file that is being read. The native side closes it. */
record HadoopInput(FSDataInputStream in, long length) {
  byte[] read(long position, int bytes) throws IOException {
    byte[] into = new byte[bytes];
    in.readFully(position, into);
    return into;
  }

  void close() throws IOException {
    in.close();
  }
}
