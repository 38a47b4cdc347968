package io.holdfast.spark.badrows;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.TaskContext;
import org.apache.spark.util.AccumulatorV2;
import org.apache.spark.util.CollectionAccumulator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The values of all accumulators of a task: Spark's metrics, the event times that move a watermark,
 * and the user's own.
 */
final class Counters {
  private final List<Runnable> restores = new ArrayList<>();

  Counters(TaskContext task) {
    CollectionConverters.asJava(task.taskMetrics().accumulators())
        .forEach(counter -> restores.add(restore(counter)));
  }

  /** Forgets all that was added since. */
  void restore() {
    restores.forEach(Runnable::run);
  }

  private static <I, O> Runnable restore(AccumulatorV2<I, O> counter) {
    if (counter instanceof CollectionAccumulator<?> values) {
      return restore(values); // those of Python merge only with their own kind, and copy to another
    }
    AccumulatorV2<I, O> value = counter.copy();
    return () -> {
      counter.reset();
      counter.merge(value);
    };
  }

  private static <T> Runnable restore(CollectionAccumulator<T> counter) {
    List<T> values = List.copyOf(counter.value());
    return () -> {
      counter.reset();
      values.forEach(counter::add);
    };
  }
}
