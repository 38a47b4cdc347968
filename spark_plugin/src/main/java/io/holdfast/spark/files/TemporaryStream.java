package io.holdfast.spark.files;

import io.holdfast.spark.minor.AtomicStream;
import java.io.IOException;
import java.io.OutputStream;

/** A file that is written under a name of its own, and gets its real one when it is closed. */
abstract class TemporaryStream extends AtomicStream {
  private boolean ended;

  TemporaryStream(OutputStream out) {
    super(out);
  }

  /**
   * Makes what was written durable, and gives it its name.
   *
   * @throws org.apache.hadoop.fs.FileAlreadyExistsException if the name is taken
   */
  abstract void publish() throws IOException;

  /** Closes and deletes what has other names still. */
  abstract void discard() throws IOException;

  @Override
  public final void close() throws IOException {
    if (ended) {
      return;
    }
    ended = true;
    try {
      publish();
    } catch (IOException | RuntimeException e) {
      try {
        discard();
      } catch (IOException | RuntimeException suppressed) {
        e.addSuppressed(suppressed);
      }
      throw e;
    }
  }

  @Override
  public final void cancel() {
    if (ended) {
      return;
    }
    ended = true;
    try {
      discard();
    } catch (IOException | RuntimeException ignored) {
      // What is left has a name that nobody reads.
    }
  }
}
