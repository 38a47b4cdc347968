package io.holdfast.spark.isolation.plan;

import io.holdfast.spark.isolation.task.KeyGroups;
import java.util.ArrayList;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.Pmod;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.TimeMode;
import scala.jdk.javaapi.CollectionConverters;

/** Finds the parts of a stage, in plans before and after the rules that make generated code. */
final class Stages {
  /** Operators that read only the state of keys in their input, if nothing ends by time. */
  private static final String BY_KEY =
      "stateStoreSave|dedupe|flatMapGroupsWithState|applyInPandasWithState|transformWithState.*";

  private Stages() {}

  /** From the root to the first stateful operator; null without one that has state. */
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

  /** The stateful operators of a stage, from its top, with or without all stages below. */
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

  /** The groups of an operator with this name; null if its keys cannot be processed apart. */
  static KeyGroups keys(SparkPlan operator, String name, List<SparkPlan> exchanges) {
    SparkPlan exchange = exchanges.get(0);
    Object timeout = Fields.get(operator, "timeoutConf");
    Object timeMode = Fields.get(operator, "timeMode");
    boolean hasWatermark =
        exchange.output().exists(column -> column.metadata().contains("spark.watermarkDelayMs"));
    boolean apart =
        name.matches(BY_KEY)
            && exchanges.size() == 1
            && !hasWatermark
            && (timeout == null || timeout.equals(GroupStateTimeout.NoTimeout()))
            && (timeMode == null || timeMode.equals(TimeMode.None()));
    return apart
            && exchange.outputPartitioning() instanceof HashPartitioning hashed
            && hashed.partitionIdExpression() instanceof Pmod number
        ? new KeyGroups(number.left(), exchange.output(), hashed.numPartitions())
        : null;
  }
}
