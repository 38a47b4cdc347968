package io.holdfast.spark.plan;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.types.StructType;
import scala.Enumeration;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Spark's {@code transformWithState} of Python, without the check of the provider's name.
 *
 * <p>Public, with the parameters of its parent's constructor: Spark copies nodes by reflection.
 */
public final class HoldfastTransformWithStateInPySparkExec extends TransformWithStateInPySparkExec {
  private static final long serialVersionUID = 1L;

  public HoldfastTransformWithStateInPySparkExec(
      Expression functionExpr,
      Seq<Attribute> groupingAttributes,
      Seq<Attribute> outputAttrs,
      OutputMode outputMode,
      TimeMode timeMode,
      Option<StatefulOperatorStateInfo> stateInfo,
      Option<Object> batchTimestampMs,
      Option<Object> prevBatchTimestampMs,
      Option<Object> eventTimeWatermarkForLateEvents,
      Option<Object> eventTimeWatermarkForEviction,
      Enumeration.Value userFacingDataType,
      SparkPlan child,
      boolean isStreaming,
      boolean hasInitialState,
      SparkPlan initialState,
      Seq<Attribute> initialStateGroupingAttrs,
      StructType initialStateSchema) {
    super(
        functionExpr,
        groupingAttributes,
        outputAttrs,
        outputMode,
        timeMode,
        stateInfo,
        batchTimestampMs,
        prevBatchTimestampMs,
        eventTimeWatermarkForLateEvents,
        eventTimeWatermarkForEviction,
        userFacingDataType,
        child,
        isStreaming,
        hasInitialState,
        initialState,
        initialStateGroupingAttrs,
        initialStateSchema);
  }

  /** Refuses nothing, because Holdfast serves the operator. The class exists for this method. */
  @Override
  public void validateStateStoreProvider(boolean isStreaming) {}

  @Override
  public HoldfastTransformWithStateInPySparkExec withNewChildrenInternal(
      SparkPlan newChild, SparkPlan newInitialState) {
    return TransformWithStateNodes.copy(
        this, HoldfastTransformWithStateInPySparkExec.class, newChild, newInitialState);
  }

  /** Never equal to a node of the parent's class. Otherwise Spark would keep that node. */
  @Override
  public boolean canEqual(Object other) {
    return other instanceof HoldfastTransformWithStateInPySparkExec;
  }

  @Override
  public boolean equals(Object other) {
    return canEqual(other) && super.equals(other);
  }

  @Override
  public int hashCode() {
    return super.hashCode();
  }
}
