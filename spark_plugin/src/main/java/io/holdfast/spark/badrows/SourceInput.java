package io.holdfast.spark.badrows;

import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;

/** Gives other rows to the source of a stage, while a task computes the stage. */
interface SourceInput {
  /**
   * The source that a task reads.
   *
   * @param rows Spark's rows, or batches of columns, from the begin
   * @param columnar whether it has batches of columns
   */
  record Source(
      Function<TaskContext, Iterator<?>> rows, boolean columnar, StructType schema) {}

  /** The source asks for its rows once in each computation of the stage. */
  Iterator<?> read(Source source);

  /** The input of this thread; without one a source has Spark's rows. */
  ThreadLocal<SourceInput> CURRENT = new ThreadLocal<>();

  static <T> T with(SourceInput input, Supplier<T> computation) {
    CURRENT.set(input);
    try {
      return computation.get();
    } finally {
      CURRENT.remove();
    }
  }
}
