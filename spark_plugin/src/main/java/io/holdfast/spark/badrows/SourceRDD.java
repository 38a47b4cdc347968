package io.holdfast.spark.badrows;

import java.util.List;
import org.apache.spark.Dependency;
import org.apache.spark.OneToOneDependency;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.types.StructType;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag;

/** The rows of a source, or those that a {@link SourceInput} gives in their place. */
final class SourceRDD<T> extends RDD<T> {
  private static final long serialVersionUID = 1L;

  private final RDD<T> rows;
  private final boolean columnar;
  private final StructType schema;

  SourceRDD(RDD<T> rows, boolean columnar, StructType schema, ClassTag<T> type) {
    super(
        rows.context(),
        CollectionConverters.asScala(List.<Dependency<?>>of(new OneToOneDependency<>(rows)))
            .toSeq(),
        type);
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
