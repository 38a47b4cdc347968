package io.holdfast.spark.isolation;

import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper$;
import scala.Option;

/** Makes the predicates of a join of streams again: the watermark is a literal in them. */
final class JoinTimes {
  private static final String SEVERAL = "spark.sql.streaming.statefulOperator.allowMultiple";

  private JoinTimes() {}

  static SparkPlan followed(SparkPlan node) {
    if (!(node instanceof StreamingSymmetricHashJoinExec join)) {
      return node;
    }
    boolean several = Boolean.parseBoolean(node.conf().getConfString(SEVERAL, "true"));
    Object predicates =
        StreamingSymmetricHashJoinHelper$.MODULE$.getStateWatermarkPredicates(
            join.left().output(),
            join.right().output(),
            join.leftKeys(),
            join.rightKeys(),
            join.condition().full(),
            join.eventTimeWatermarkForEviction(),
            Option.empty(), // from-4.2
            !several);
    return Fields.with(node, "stateWatermarkPredicates", predicates);
  }
}
