package org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate;

import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.IndexedSeq;

/**
 * Takes the place of Spark's class in javac: a method of it has another Java signature than the
 * method that it overrides. Scala's compiler and the JVM accept that, but javac refuses every
 * subclass. This class is not in the jar, so only Spark's class exists at run time.
 */
@SuppressWarnings("serial")
public abstract class TransformWithStateExecBase extends SparkPlan {
  public abstract void validateStateStoreProvider(boolean isStreaming);

  @Override
  public abstract SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> newChildren);
}
