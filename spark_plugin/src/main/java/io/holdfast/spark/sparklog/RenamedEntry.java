package io.holdfast.spark.sparklog;

import io.holdfast.spark.storage.AtomicStream;
import io.holdfast.spark.storage.FileErrors;
import java.io.IOException;
import java.io.OutputStream;

/** A file that is written under another name, and gets its own name when it is closed. */
abstract class RenamedEntry extends AtomicStream {
  RenamedEntry(OutputStream out) {
    super(out);
  }

  /**
   * Makes the content durable, and gives the file its name; throws {@link
   * org.apache.hadoop.fs.FileAlreadyExistsException} if the name is taken.
   */
  abstract void giveName() throws IOException;

  /** Closes and deletes files with other names. */
  abstract void deleteRest() throws IOException;

  @Override
  protected final void publish() throws IOException {
    try {
      giveName();
    } catch (IOException | RuntimeException e) {
      FileErrors.suppressed(e, this::deleteRest);
      throw e;
    }
  }

  @Override
  protected final void discard() {
    try {
      deleteRest();
    } catch (IOException | RuntimeException ignored) {
      // No reader uses a file of this name.
    }
  }
}
