package io.holdfast.spark.plan;

import org.apache.spark.sql.catalyst.encoders.ExpressionEncoder;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate.TransformWithStateExec;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TimeMode;
import scala.Option;
import scala.collection.immutable.Seq;

/**
 * Spark's {@code transformWithState} of the JVM, without the check of the provider's name.
 *
 * <p>Public, with the parameters of its parent's constructor: Spark copies nodes by reflection.
 */
public final class HoldfastTransformWithStateExec extends TransformWithStateExec {
  private static final long serialVersionUID = 1L;

  public HoldfastTransformWithStateExec(
      Expression keyDeserializer,
      Expression valueDeserializer,
      Seq<Attribute> groupingAttributes,
      Seq<Attribute> dataAttributes,
      StatefulProcessor<Object, Object, Object> statefulProcessor,
      TimeMode timeMode,
      OutputMode outputMode,
      ExpressionEncoder<Object> keyEncoder,
      Attribute outputObjAttr,
      Option<StatefulOperatorStateInfo> stateInfo,
      Option<Object> batchTimestampMs,
      Option<Object> prevBatchTimestampMs,
      Option<Object> eventTimeWatermarkForLateEvents,
      Option<Object> eventTimeWatermarkForEviction,
      SparkPlan child,
      boolean isStreaming,
      boolean isRealTimeMode, // from-4.3
      boolean hasInitialState,
      Seq<Attribute> initialStateGroupingAttrs,
      Seq<Attribute> initialStateDataAttrs,
      Expression initialStateDeserializer,
      SparkPlan initialState) {
    super(
        keyDeserializer,
        valueDeserializer,
        groupingAttributes,
        dataAttributes,
        statefulProcessor,
        timeMode,
        outputMode,
        keyEncoder,
        outputObjAttr,
        stateInfo,
        batchTimestampMs,
        prevBatchTimestampMs,
        eventTimeWatermarkForLateEvents,
        eventTimeWatermarkForEviction,
        child,
        isStreaming,
        isRealTimeMode, // from-4.3
        hasInitialState,
        initialStateGroupingAttrs,
        initialStateDataAttrs,
        initialStateDeserializer,
        initialState);
  }

  /** Refuses nothing, because Holdfast serves the operator. The class exists for this method. */
  @Override
  public void validateStateStoreProvider(boolean isStreaming) {}

  @Override
  public HoldfastTransformWithStateExec withNewChildrenInternal(
      SparkPlan newChild, SparkPlan newInitialState) {
    return TransformWithStateNodes.copy(
        this, HoldfastTransformWithStateExec.class, newChild, newInitialState);
  }

  /** Never equal to a node of the parent's class. Otherwise Spark would keep that node. */
  @Override
  public boolean canEqual(Object other) {
    return other instanceof HoldfastTransformWithStateExec;
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
