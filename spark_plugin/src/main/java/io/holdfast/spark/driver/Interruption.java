package io.holdfast.spark.driver;

import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.UncheckedIOException;
import java.nio.channels.ClosedByInterruptException;

/**
 * The end of a query that is stopped while it writes. Spark ends such a query quietly, but only for
 * a few classes ({@code StreamExecution.isInterruptionException}) that no exception of Holdfast or
 * Hadoop wraps.
 */
public final class Interruption {
  private Interruption() {}

  /**
   * Throws if the query of this thread is stopped. A wait for answers that have arrived does not
   * throw: without this, the speed of the executors would decide about the batch.
   */
  static void throwIfStopped() throws InterruptedIOException {
    if (Thread.currentThread().isInterrupted()) {
      throw new InterruptedIOException("Interrupted before the batch was committed");
    }
  }

  /** Throws the failure in a class that Spark recognises, if an interruption caused it. */
  static void throwIfBehind(Exception failure) throws InterruptedIOException {
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      if (cause instanceof InterruptedException
          || cause instanceof InterruptedIOException
          || cause instanceof ClosedByInterruptException) {
        InterruptedIOException found = new InterruptedIOException(failure.getMessage());
        found.initCause(failure);
        throw found;
      }
    }
  }

  /** Like {@link #throwIfBehind}, but returns: the interruption, or else the failure, unchecked. */
  public static RuntimeException orSame(Exception thrown) {
    RuntimeException failure =
        thrown instanceof IOException e ? new UncheckedIOException(e) : (RuntimeException) thrown;
    try {
      throwIfBehind(failure);
      return failure;
    } catch (InterruptedIOException found) {
      return new UncheckedIOException(found);
    }
  }
}
