package io.holdfast.spark.isolation.task;

import java.io.Serializable;
import java.util.List;
import java.util.stream.IntStream;
import org.apache.spark.Dependency;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/** Rows that a function reads for each partition. */
public final class RowsRDD extends RDD<InternalRow> {
  private static final long serialVersionUID = 1L;

  public interface Rows extends Serializable {
    Iterator<InternalRow> read(int partition, TaskContext task);
  }

  interface OwnPartition extends Partition {
    /** Scala's compiler makes this method in each class; javac does not see it. */
    default boolean org$apache$spark$Partition$$super$equals(Object other) {
      return this == other;
    }
  }

  private record Numbered(int index) implements OwnPartition {}

  private final int count;
  private final Rows rows;

  public RowsRDD(SparkContext spark, int count, Rows rows) {
    super(
        spark,
        CollectionConverters.asScala(List.<Dependency<?>>of()).toSeq(),
        ClassTag$.MODULE$.apply(InternalRow.class));
    this.count = count;
    this.rows = rows;
  }

  @Override
  public Partition[] getPartitions() {
    return IntStream.range(0, count).mapToObj(Numbered::new).toArray(Partition[]::new);
  }

  @Override
  public Iterator<InternalRow> compute(Partition split, TaskContext task) {
    return rows.read(split.index(), task);
  }
}
