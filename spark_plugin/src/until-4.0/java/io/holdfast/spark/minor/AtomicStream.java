package io.holdfast.spark.minor;

import java.io.OutputStream;
import org.apache.spark.sql.execution.streaming.CheckpointFileManager.CancellableFSDataOutputStream;

/** A file that appears whole when it is closed, and never when it is cancelled. */
public abstract class AtomicStream extends CancellableFSDataOutputStream {
  protected AtomicStream(OutputStream out) {
    super(out);
  }
}
