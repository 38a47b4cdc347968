package io.holdfast.spark.isolation;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import scala.jdk.javaapi.CollectionConverters;

/** Finds the parts of a stage, in plans before and behind the rules that make generated code. */
final class Stages {
  private Stages() {}

  /** The nodes from the root to the first stateful operator; null without one that has state. */
  static List<SparkPlan> pathToOperator(SparkPlan node) {
    if (node instanceof StateStoreWriter writer) {
      return writer.stateInfo().isDefined() ? new ArrayList<>(List.of(node)) : null;
    }
    for (SparkPlan child : CollectionConverters.asJava(node.children())) {
      List<SparkPlan> path = pathToOperator(child);
      if (path != null) {
        path.add(0, node);
        return path;
      }
    }
    return null;
  }

  /** The stateful operators of a stage, from its top, or with those of all stages below. */
  static int operators(SparkPlan node, boolean below) {
    if (node instanceof Exchange && !below) {
      return 0;
    }
    return CollectionConverters.asJava(node.children()).stream()
        .mapToInt(child -> operators(child, below))
        .reduce(node instanceof StateStoreWriter ? 1 : 0, Integer::sum);
  }

  /** The exchanges below an operator, and leaves of the plan where there are none. */
  static List<SparkPlan> inputs(SparkPlan node) {
    if (node instanceof Exchange || node.children().isEmpty()) {
      return List.of(node);
    }
    // Without initial state its side of the plan is not computed.
    boolean one = Boolean.FALSE.equals(Fields.get(node, "hasInitialState"));
    List<SparkPlan> found = new ArrayList<>();
    for (SparkPlan child : CollectionConverters.asJava(node.children())) {
      if (found.isEmpty() || !one) {
        found.addAll(inputs(child));
      }
    }
    return found;
  }
}
