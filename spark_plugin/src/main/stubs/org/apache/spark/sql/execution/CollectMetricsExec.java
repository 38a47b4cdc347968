package org.apache.spark.sql.execution;

import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.NamedExpression;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/** Takes the place of Spark's class in javac, for the reason that TransformWithStateExecBase gives. */
@SuppressWarnings("serial")
public class CollectMetricsExec extends SparkPlan {
  public CollectMetricsExec(String name, Seq<NamedExpression> metricExpressions, SparkPlan child) {}

  public SparkPlan child() {
    return null;
  }

  public Row collectedMetrics() {
    return null;
  }

  public CollectMetricsExec withNewChildInternal(SparkPlan newChild) {
    return null;
  }

  @Override
  public Seq<Attribute> output() {
    return null;
  }

  @Override
  public Seq<SparkPlan> children() {
    return null;
  }

  @Override
  public SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> newChildren) {
    return null;
  }

  @Override
  public RDD<InternalRow> doExecute() {
    return null;
  }

  @Override
  public int productArity() {
    return 0;
  }

  @Override
  public Object productElement(int index) {
    return null;
  }

  @Override
  public boolean canEqual(Object other) {
    return false;
  }
}
