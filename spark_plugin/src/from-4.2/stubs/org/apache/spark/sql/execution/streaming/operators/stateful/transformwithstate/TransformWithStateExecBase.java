package org.apache.spark.sql.execution.streaming.operators.stateful.transformwithstate;

import org.apache.spark.sql.execution.SparkPlan;
import scala.collection.immutable.IndexedSeq;
import scala.collection.immutable.Seq;

/**
 * What javac is shown in place of Spark's class. The real one has a method whose Java signature
 * contradicts the one it overrides (Scala's compiler does not mind, and the JVM sees none of it),
 * so javac refuses every subclass. Never compiled into the jar: at run time there is only Spark's.
 */
@SuppressWarnings("serial")
public abstract class TransformWithStateExecBase extends SparkPlan {
  /** Throws if the configured state store provider is not one that Spark's list names. */
  public abstract void validateStateStoreProvider(boolean isStreaming);

  @Override
  public abstract SparkPlan withNewChildrenInternal(IndexedSeq<SparkPlan> newChildren);
}
