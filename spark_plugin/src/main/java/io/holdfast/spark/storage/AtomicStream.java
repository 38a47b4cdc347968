package io.holdfast.spark.storage;

import java.io.IOException;
import java.io.OutputStream;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;

/** A file that appears whole when it is closed, and never if it is cancelled before. */
public abstract class AtomicStream extends CancellableFSDataOutputStream {
  private boolean ended;

  protected AtomicStream(OutputStream out) {
    super(out);
  }

  /** Makes the file appear; on a failure nothing is left to discard. Called once at most. */
  protected abstract void publish() throws IOException;

  /** Called once at most, and not after {@link #publish}. */
  protected abstract void discard();

  @Override
  public final void close() throws IOException {
    if (!ended) {
      ended = true;
      publish();
    }
  }

  @Override
  public final void cancel() {
    if (!ended) {
      ended = true;
      discard();
    }
  }
}
