package io.holdfast.spark.badrows;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericRowWithSchema;
import org.apache.spark.sql.execution.CollectMetricsExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Seq$;

/**
 * Shows how many rows of a source a batch set aside, as an observed metric of the query's progress.
 * Spark makes the progress behind the commit of a batch, when its dead letters are written.
 */
final class ShownRows extends CollectMetricsExec {
  private static final long serialVersionUID = 1L;

  /** The name of a metric ends with the number of its source. */
  static final String NAME = "holdfast_bad_rows_";

  private static final StructType SCHEMA =
      new StructType().add("rows", DataTypes.LongType, false);

  private final transient RowGuard guard;

  @SuppressWarnings("unchecked") // an empty list has every type
  ShownRows(RowGuard guard, SparkPlan child) {
    super(NAME + guard.source(), Seq$.MODULE$.empty(), child);
    this.guard = guard;
  }

  @Override
  public Row collectedMetrics() {
    long rows = guard.run().publishedRows(guard.key().batch());
    return new GenericRowWithSchema(new Object[] {rows}, SCHEMA);
  }

  @Override
  public void resetMetrics() {}

  @Override
  public RDD<InternalRow> doExecute() {
    return child().execute();
  }

  @Override
  public CollectMetricsExec withNewChildInternal(SparkPlan child) {
    return new ShownRows(guard, child);
  }
}
