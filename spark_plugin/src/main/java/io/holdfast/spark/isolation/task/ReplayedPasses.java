package io.holdfast.spark.isolation.task;

import io.holdfast.spark.executor.HoldfastExecutor;
import org.apache.spark.Dependency;
import org.apache.spark.NarrowDependency;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.api.java.UDF0;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.execution.LogicalRDD;
import org.apache.spark.sql.functions;
import org.apache.spark.sql.types.DataTypes;
import scala.jdk.javaapi.CollectionConverters;

/** Tells the rows of passes apart in a batch that {@code foreachBatch} gives to a function. */
public final class ReplayedPasses {
  private ReplayedPasses() {}

  /** Returns true if rows of earlier batches may be among the rows of a batch. */
  public static boolean mayHave(Dataset<?> batch) {
    LogicalPlan plan = batch.queryExecution().analyzed();
    if (!(plan instanceof LogicalRDD rows)) {
      throw new IllegalArgumentException(
          "passes() takes the DataFrame that foreachBatch gives to its function, unchanged");
    }
    return mayHave(rows.rdd(), false);
  }

  private static boolean mayHave(RDD<?> rows, boolean mixed) {
    if (rows instanceof GuardRDD guarded) {
      boolean replays = guarded.hasPasses();
      if (replays && mixed) {
        throw new UnsupportedOperationException(
            "passes() cannot tell the passes apart: there is a shuffle between the stateful operator"
                + " and foreachBatch. Shuffle the rows inside the function.");
      }
      return replays;
    }
    boolean found = false;
    for (Dependency<?> below : CollectionConverters.asJava(rows.dependencies())) {
      found |= mayHave(below.rdd(), mixed || !(below instanceof NarrowDependency<?>));
    }
    return found;
  }

  /** A batch with one more column, the number of the pass that has the row. */
  public static org.apache.spark.sql.Dataset<?> numbered(Dataset<?> batch, String column) {
    UDF0<Integer> pass = () -> HoldfastExecutor.running().passOf(TaskContext.get());
    return batch.withColumn(
        column, functions.udf(pass, DataTypes.IntegerType).asNondeterministic().apply());
  }
}
