package io.holdfast.spark.badrows;

import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/**
 * On top of a source, so that a task can give single rows of it to the stage.
 *
 * <p>Public, with a constructor of all its fields: Spark copies nodes by reflection.
 */
public final class SourceExec extends SparkPlan {
  private static final long serialVersionUID = 1L;

  private final SparkPlan child;

  public SourceExec(SparkPlan child) {
    this.child = child;
  }

  @Override
  public RDD<InternalRow> doExecute() {
    return new SourceRDD<>(
        child.execute(), false, child.schema(), ClassTag$.MODULE$.apply(InternalRow.class));
  }

  @Override
  public boolean supportsColumnar() {
    return child.supportsColumnar();
  }

  @Override
  public RDD<ColumnarBatch> doExecuteColumnar() {
    return new SourceRDD<>(
        child.executeColumnar(), true, child.schema(), ClassTag$.MODULE$.apply(ColumnarBatch.class));
  }

  @Override
  public Seq<Attribute> output() {
    return child.output();
  }

  @Override
  public Partitioning outputPartitioning() {
    return child.outputPartitioning();
  }

  @Override
  public Seq<SortOrder> outputOrdering() {
    return child.outputOrdering();
  }

  @Override
  public Seq<SparkPlan> children() {
    return CollectionConverters.asScala(List.of(child)).toSeq();
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> newChildren) {
    return new SourceExec(newChildren.head());
  }

  @Override
  public int productArity() {
    return 1;
  }

  @Override
  public Object productElement(int index) {
    return child;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof SourceExec;
  }
}
