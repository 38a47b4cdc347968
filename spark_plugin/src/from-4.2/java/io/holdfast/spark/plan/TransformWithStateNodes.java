package io.holdfast.spark.plan;

import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec;
import scala.PartialFunction$;

/**
 * Lets {@code transformWithState} run on Holdfast. Spark's nodes compare the name of the configured
 * provider with that of its RocksDB provider. A plan for Holdfast gets nodes that do not.
 */
public final class TransformWithStateNodes {
  private TransformWithStateNodes() {}

  /** The plan of a query on Holdfast, with Holdfast's nodes. */
  public static SparkPlan replaced(SparkPlan plan) {
    return plan.transformUp(
        PartialFunction$.MODULE$.fromFunction(TransformWithStateNodes::replacement));
  }

  /**
   * Replaces exactly Spark's own nodes, and no subclasses. A batch query keeps its state in a
   * temporary store of Spark, for every provider.
   */
  private static SparkPlan replacement(SparkPlan node) {
    if (node.getClass() == TransformWithStateExec.class) {
      TransformWithStateExec spark = (TransformWithStateExec) node;
      return spark.isStreaming()
          ? HoldfastTransformWithStateExec.of(spark, spark.child(), spark.initialState())
          : spark;
    }
    if (node.getClass() == TransformWithStateInPySparkExec.class) {
      TransformWithStateInPySparkExec spark = (TransformWithStateInPySparkExec) node;
      return spark.isStreaming()
          ? HoldfastTransformWithStateInPySparkExec.of(spark, spark.child(), spark.initialState())
          : spark;
    }
    return node;
  }
}
