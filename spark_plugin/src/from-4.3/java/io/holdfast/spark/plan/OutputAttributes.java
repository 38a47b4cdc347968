package io.holdfast.spark.plan;

import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.execution.python.streaming.TransformWithStateInPySparkExec;
import scala.collection.immutable.Seq;

/** The output that a node of Python was constructed with: since 4.3 its own is derived from that. */
final class OutputAttributes {
  private OutputAttributes() {}

  static Seq<Attribute> of(TransformWithStateInPySparkExec node) {
    return node.outputAttrs();
  }
}
