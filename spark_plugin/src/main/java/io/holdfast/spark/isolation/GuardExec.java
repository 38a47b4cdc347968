package io.holdfast.spark.isolation;

import io.holdfast.spark.store.StoreMetrics;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.catalyst.plans.physical.Partitioning;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Stands on top of the stage of the last stateful operator. Its tasks run the stage, or park the
 * input of their partition.
 *
 * <p>Public, with a constructor of all its fields: Spark copies nodes by reflection.
 */
public final class GuardExec extends SparkPlan {
  private static final long serialVersionUID = 1L;

  private final SparkPlan child;
  private final transient Guard guard;

  public GuardExec(SparkPlan child, Guard guard) {
    this.child = child;
    this.guard = guard;
  }

  @Override
  public RDD<InternalRow> doExecute() {
    RDD<InternalRow> stage = child.execute();
    // Rules that ran behind the guard's made other nodes of those that it saw.
    List<SparkPlan> path = Stages.pathToOperator(child);
    SparkPlan operator = path.get(path.size() - 1);
    List<RDD<InternalRow>> inputs = executed(Stages.inputs(operator));
    List<RDD<InternalRow>> passes =
        executed(guard.passes().stream().map(Guard.Pass::stage).toList());
    StateStoreWriter writer = (StateStoreWriter) operator;
    GuardedBatch batch = guard.begin(writer.shortName());
    GuardRDD guarded = new GuardRDD(sparkContext(), stage, inputs, passes, guard, writer, batch);
    batch.showSince(ParkedMetrics.metric(writer, StoreMetrics.PARKED_SINCE));
    batch.rdds.add(guarded.id());
    return guarded;
  }

  private static List<RDD<InternalRow>> executed(List<SparkPlan> plans) {
    List<RDD<InternalRow>> rows = new ArrayList<>();
    plans.forEach(plan -> rows.add(plan.execute()));
    return rows;
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
    return new GuardExec(newChildren.head(), guard);
  }

  @Override
  public int productArity() {
    return 2;
  }

  @Override
  public Object productElement(int index) {
    return index == 0 ? child : guard;
  }

  @Override
  public boolean canEqual(Object other) {
    return other instanceof GuardExec;
  }
}
