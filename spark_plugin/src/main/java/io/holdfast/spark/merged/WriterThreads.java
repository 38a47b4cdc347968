package io.holdfast.spark.merged;

import io.holdfast.spark.DaemonThreads;
import java.io.IOException;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;

/**
 * Threads that do the writes: Spark interrupts the threads of tasks, and many tasks share a file. A
 * write of it must not break in the middle because one of them was cancelled.
 */
final class WriterThreads {
  private static final long IDLE_S = 10;

  private final ExecutorService threads =
      new ThreadPoolExecutor(
          0,
          Integer.MAX_VALUE,
          IDLE_S,
          TimeUnit.SECONDS,
          new SynchronousQueue<>(),
          DaemonThreads.named("holdfast-writer"));

  /** Runs a step to its end, even if the task is cancelled during the step. */
  <T> T run(Callable<T> step) throws IOException {
    return get(threads.submit(step), false);
  }

  static <T> T get(Future<T> future, boolean interruptible) throws IOException {
    boolean interrupted = false;
    try {
      while (true) {
        try {
          return future.get();
        } catch (InterruptedException e) {
          interrupted = true;
          if (interruptible) {
            throw new IOException("Interrupted while a file was opened", e);
          }
        }
      }
    } catch (ExecutionException e) {
      throw e.getCause() instanceof IOException cause
          ? cause
          : new IOException(e.getCause().toString(), e.getCause());
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
