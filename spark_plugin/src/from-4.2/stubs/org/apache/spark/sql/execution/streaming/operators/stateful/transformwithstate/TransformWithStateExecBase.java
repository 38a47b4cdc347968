package org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate;

import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.IndexedSeq;

/**
 * Stands in for Spark's class in javac. A method of Spark's class has another Java signature than
 * the method that it overrides. Scala's compiler and the JVM accept that, but javac refuses every
 * subclass. This class is not in the jar, so only Spark's class exists at run time.
 */
@SuppressWarnings("serial")
public abstract class TransformWithStateExecBase extends SparkPlan {
  /** Throws if the configured state store provider is not one that Spark's list names. */
  public abstract void validateStateStoreProvider(boolean isStreaming);

  @Override
  public abstract SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> newChildren);
}
