package io.holdfast.spark.plan;

import io.holdfast.spark.HoldfastException;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec;
import scala.PartialFunction$;

/**
 * Lets {@code transformWithState} run on Holdfast. Spark's nodes refuse every configured provider
 * but its RocksDB provider. A plan for Holdfast gets nodes that refuse none.
 */
public final class TransformWithStateNodes {
  private TransformWithStateNodes() {}

  public static SparkPlan replaced(SparkPlan plan) {
    return plan.transformUp(
        PartialFunction$.MODULE$.fromFunction(TransformWithStateNodes::replacement));
  }

  /**
   * Replaces exactly Spark's own nodes, and no subclasses. A batch query keeps its state in a
   * temporary store of Spark, for every provider.
   */
  private static SparkPlan replacement(SparkPlan node) {
    if (node instanceof TransformWithStateExec spark
        && spark.getClass() == TransformWithStateExec.class
        && spark.isStreaming()) {
      return copy(spark, HoldfastTransformWithStateExec.class, spark.child(), spark.initialState());
    }
    if (node instanceof TransformWithStateInPySparkExec spark
        && spark.getClass() == TransformWithStateInPySparkExec.class
        && spark.isStreaming()) {
      return copy(
          spark,
          HoldfastTransformWithStateInPySparkExec.class,
          spark.child(),
          spark.initialState());
    }
    return node;
  }

  /** The same operator of a class with the same constructor, with these children. */
  static <T extends SparkPlan> T copy(
      SparkPlan node, Class<T> type, SparkPlan child, SparkPlan initialState) {
    Object[] values = new Object[node.productArity()];
    for (int i = 0; i < values.length; i++) {
      values[i] =
          switch (node.productElementName(i)) {
            case "child" -> child;
            case "initialState" -> initialState;
            default -> node.productElement(i);
          };
    }
    try {
      return type.cast(type.getConstructors()[0].newInstance(values));
    } catch (ReflectiveOperationException e) {
      throw new HoldfastException("Cannot make a node of " + type, e);
    }
  }
}
