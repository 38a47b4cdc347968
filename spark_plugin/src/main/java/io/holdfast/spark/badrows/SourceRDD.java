package io.holdfast.spark.badrows;

import io.holdfast.spark.isolation.plan.GuardExec;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.Iterator;

/** The rows of a source, or those that a {@link SourceInput} gives in their place. */
final class SourceRDD<T> extends RDD<T> {
  private static final long serialVersionUID = 1L;

  private final RDD<T> rows;
  private final boolean columnar;
  private final StructType schema;

  /** Lets tasks give other rows to the stage above a source. */
  record Execution() implements GuardExec.Execution {
    @Override
    public RDD<InternalRow> execute(SparkPlan source) {
      return new SourceRDD<>(source.execute(), false, source.schema());
    }

    @Override
    public boolean isColumnar(SparkPlan source) {
      return source.supportsColumnar();
    }

    @Override
    public RDD<ColumnarBatch> executeColumnar(SparkPlan source) {
      return new SourceRDD<>(source.executeColumnar(), true, source.schema());
    }

    /** For {@code explain}. */
    @Override
    public String toString() {
      return "source";
    }
  }

  private SourceRDD(RDD<T> rows, boolean columnar, StructType schema) {
    super(rows, rows.elementClassTag());
    this.rows = rows;
    this.columnar = columnar;
    this.schema = schema;
  }

  @Override
  public Partition[] getPartitions() {
    return rows.partitions();
  }

  @Override
  @SuppressWarnings("unchecked") // the input has rows of the source's kind
  public Iterator<T> compute(Partition split, TaskContext task) {
    SourceInput input = SourceInput.CURRENT.get();
    return input == null
        ? rows.iterator(split, task)
        : (Iterator<T>)
            input.read(
                new SourceInput.Source(own -> rows.iterator(split, own), columnar, schema));
  }
}
