package io.holdfast.spark.isolation.plan;

import java.util.List;
import java.util.Objects;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.PartialFunction$;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The guard. On top of the last stateful operator's stage, its tasks run the stage or park the
 * input of their partition. On top of the operator's exchange, rows of keys that wait end. On top of
 * a source, a task can give single rows of it to the stage.
 *
 * <p>Public, with a constructor of all its fields: Spark copies nodes by reflection.
 */
public final class GuardExec extends SparkPlan {
  private static final long serialVersionUID = 1L;

  private final SparkPlan child;
  private final transient Execution execution;

  /** The work of the node's tasks. */
  public interface Execution {
    RDD<InternalRow> execute(SparkPlan child);

    /** Null unless the node passes on batches of columns. */
    default RDD<ColumnarBatch> executeColumnar(SparkPlan child) {
      return null;
    }

    default boolean isColumnar(SparkPlan child) {
      return false;
    }
  }

  public GuardExec(SparkPlan child, Execution execution) {
    this.child = child;
    this.execution = execution;
  }

  /** The plan with another node in the place of one. */
  public static SparkPlan replaced(SparkPlan plan, SparkPlan node, SparkPlan other) {
    return plan.transformUp(
        PartialFunction$.MODULE$.fromFunction(one -> one == node ? other : one));
  }

  @Override
  public RDD<InternalRow> doExecute() {
    return execution.execute(child);
  }

  @Override
  public boolean supportsColumnar() {
    return execution.isColumnar(child);
  }

  @Override
  public RDD<ColumnarBatch> doExecuteColumnar() {
    return execution.executeColumnar(child);
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
    return new GuardExec(newChildren.head(), execution);
  }

  @Override
  public int productArity() {
    return 2;
  }

  @Override
  public Object productElement(int index) {
    return index == 0 ? child : execution;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof GuardExec;
  }

  /** Spark runs equal exchanges once. The superclass has a hash of the product. */
  @Override
  public boolean equals(Object other) {
    return other instanceof GuardExec guard
        && child.equals(guard.child)
        && Objects.equals(execution, guard.execution);
  }
}
