package io.holdfast.spark.badrows;

import java.io.InterruptedIOException;
import java.nio.channels.ClosedByInterruptException;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Function;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.TaskKilledException;
import org.apache.spark.executor.TaskMetrics;
import org.apache.spark.memory.TaskMemoryManager;
import org.apache.spark.shuffle.FetchFailedException;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.unsafe.Platform;
import scala.Option;
import scala.collection.Iterator;

/**
 * Finds the rows of a partition for which its stage throws. A row is bad if the stage throws twice
 * when it gets nothing but this row. Results of the stage are dropped, and nothing is counted.
 */
final class RowSearch implements SourceInput {
  /** Trials have memory of their own, under numbers that no task has. */
  private static final AtomicLong TRIALS = new AtomicLong(Long.MIN_VALUE);

  /** The driver hears of bad rows early, if most rows are bad and there are so many. */
  private static final int MANY = 100;

  /** Parts of rows that fail together. A trial that fails may cost a Python worker, others are cheap. */
  private static final int PARTS = 8;

  private final Function<TaskContext, Iterator<InternalRow>> stage;
  private final TaskContext task;

  /** The stage may read rows before it throws for an earlier one. */
  private final boolean readsAhead;

  private final LeftOut leftOut;
  private final Runnable tooMany;
  private final long max;
  private Source source;
  private Iterator<?> slice = Iterator.empty();
  private Blocks blocks;
  private Block block;
  private long many = MANY;

  /**
   * @param stage computes the rows of the partition
   * @param leftOut receives the bad rows
   * @param max rows that it may have
   * @param tooMany throws if it has too many for the batch
   */
  RowSearch(
      Function<TaskContext, Iterator<InternalRow>> stage,
      TaskContext task,
      boolean readsAhead,
      LeftOut leftOut,
      long max,
      Runnable tooMany) {
    this.stage = stage;
    this.task = task;
    this.readsAhead = readsAhead;
    this.leftOut = leftOut;
    this.max = max;
    this.tooMany = tooMany;
  }

  @Override
  public Iterator<?> read(Source found) {
    source = found;
    return slice;
  }

  void run() {
    Counters counters = new Counters(task);
    try {
      // Shows the source of this partition.
      Throwable failure = compute();
      if (failure != null || source == null) {
        return;
      }
      blocks = new Blocks(source, task);
      while ((block = blocks.next()) != null) {
        blocks.named(leftOut.named(), (number, digest) -> block.leftOut.set(number));
        search();
      }
    } finally {
      counters.restore();
    }
  }

  private void search() {
    int from = 0;
    while (from < block.size()) {
      Throwable failure = trial(from, block.size());
      if (failure == null) {
        return;
      }
      int suspect = block.last[0];
      if (readsAhead || !isBad(suspect, trial(suspect, suspect + 1))) {
        divide(from, block.size(), failure);
        return;
      }
      // The stage took all rows before this one without an error.
      from = suspect + 1;
    }
  }

  /** Rows of a range fail together. */
  private void divide(int from, int to, Throwable failure) {
    if (to - from == 1) {
      isBad(from, failure);
      return;
    }
    int parts = Math.min(PARTS, to - from);
    for (int part = 0; part < parts; part++) {
      int begin = from + (to - from) * part / parts;
      int end = from + (to - from) * (part + 1) / parts;
      Throwable failed = trial(begin, end);
      if (failed != null) {
        divide(begin, end, failed);
      }
    }
  }

  /** Returns true if a row that failed alone fails again. */
  private boolean isBad(int row, Throwable failure) {
    if (failure == null || trial(row, row + 1) == null) {
      return false;
    }
    block.leftOut.set(row);
    leftOut.add(blocks, row, block.row(row), failure);
    long count = leftOut.count();
    if (count > max || (count >= many && 2 * count > blocks.number(row))) {
      many = 2 * count;
      tooMany.run();
    }
    return true;
  }

  private Throwable trial(int from, int to) {
    slice = block.slice(from, to);
    return compute();
  }

  /** Computes the stage for the slice; returns the error. */
  private Throwable compute() {
    TaskMemoryManager memory =
        new TaskMemoryManager(SparkEnv.get().memoryManager(), TRIALS.getAndIncrement());
    TaskContextImpl own =
        new TaskContextImpl(
            task.stageId(),
            task.stageAttemptNumber(),
            task.partitionId(),
            task.taskAttemptId(),
            task.attemptNumber(),
            task.numPartitions(),
            memory,
            task.getLocalProperties(),
            SparkEnv.get().metricsSystem(),
            new TaskMetrics(),
            task.cpuAmount(), // from-4.3
            // until-4.2: task.cpus(),
            task.resources());
    Throwable failure = null;
    TaskContext$.MODULE$.setTaskContext(own);
    try {
      SourceInput.with(
          this,
          () -> {
            stage.apply(own).foreach(row -> null);
            return null;
          });
    } catch (Throwable thrown) {
      failure = thrown;
    }
    try {
      own.markTaskCompleted(Option.apply(failure));
    } catch (RuntimeException e) {
      // An operator could not close what the failure left.
      failure = failure == null ? e : failure;
    } finally {
      memory.cleanUpAllAllocatedMemory();
      TaskContext$.MODULE$.setTaskContext(task);
    }
    task.killTaskIfInterrupted();
    for (Throwable cause = failure; cause != null; cause = cause.getCause()) {
      if (isOfMachine(cause)) {
        Platform.throwException(failure);
      }
    }
    return failure;
  }

  /** Errors that are no row's fault. */
  private static boolean isOfMachine(Throwable failure) {
    String said = String.valueOf(failure.getMessage());
    return (failure instanceof VirtualMachineError && !(failure instanceof StackOverflowError))
        || failure instanceof InterruptedException
        || failure instanceof InterruptedIOException
        || failure instanceof ClosedByInterruptException
        || failure instanceof TaskKilledException
        || failure instanceof FetchFailedException
        || said.contains("No space left on device")
        || said.contains("Too many open files");
  }
}
