package io.holdfast.spark.merged;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.StreamCapabilities;

/** A file that is being written. The native side calls it from one thread at a time. */
final class HadoopOutput {
  private static final int COPY_BYTES = 64 << 10;

  private final WriterThreads writers;
  private final FSDataOutputStream out;
  private final boolean durableAppend;
  private final byte[] copy = new byte[COPY_BYTES];

  HadoopOutput(WriterThreads writers, FSDataOutputStream out) {
    this.writers = writers;
    this.out = out;
    durableAppend = out.hasCapability(StreamCapabilities.HSYNC);
  }

  /** Returns true if appended bytes survive this process. Else the file appears at its end. */
  boolean durableAppend() {
    return durableAppend;
  }

  /** Native memory is valid during the call only. */
  void append(ByteBuffer bytes) throws IOException {
    writers.run(
        () -> {
          while (bytes.hasRemaining()) {
            int length = Math.min(bytes.remaining(), COPY_BYTES);
            bytes.get(copy, 0, length);
            out.write(copy, 0, length);
          }
          if (durableAppend) {
            out.hflush();
          }
          return null;
        });
  }

  void sync() throws IOException {
    writers.run(
        () -> {
          out.hsync();
          return null;
        });
  }

  void finish() throws IOException {
    writers.run(
        () -> {
          if (durableAppend) {
            // After a mere close, the last bytes are only in the memory of the data nodes.
            out.hsync();
          }
          out.close();
          return null;
        });
  }

  /** Ends without finishing, with the same effect as a crash of the process. */
  void abandon() throws IOException {
    writers.run(
        () -> {
          if (durableAppend) {
            out.close();
          } else if (out.hasCapability(StreamCapabilities.ABORTABLE_STREAM)) {
            out.abort();
          }
          // The close of any other stream would publish the object.
          return null;
        });
  }
}
