package io.holdfast.spark.isolation.plan;

import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinHelper$;
import scala.Option;

/** Fields of Spark's plan nodes by their names, which are the same on all minors. */
final class Fields {
  /**
   * The times of a batch. A replay needs the times of its rows' batch. All operators have the first
   * two, operators with functions the third, and transformWithState has all.
   */
  private static final String[] TIMES = {
    "eventTimeWatermarkForLateEvents",
    "eventTimeWatermarkForEviction",
    "batchTimestampMs",
    "prevBatchTimestampMs", // from-4.2
  };

  /** Spark's setting that each of several operators has its own watermarks. */
  private static final String SEVERAL = "spark.sql.streaming.statefulOperator.allowMultiple";

  private Fields() {}

  /** -1 if the node has no such field. */
  private static int place(SparkPlan node, String name) {
    for (int i = 0; i < node.productArity(); i++) {
      if (node.productElementName(i).equals(name)) {
        return i;
      }
    }
    return -1;
  }

  /** The value of a field without its {@code Some}; null if the node has no such field, or none. */
  static Object get(SparkPlan node, String name) {
    int place = place(node, name);
    Object value = place < 0 ? null : node.productElement(place);
    return value instanceof Option<?> option ? option.getOrElse(() -> null) : value;
  }

  /** Fields that isolation needs and this Spark lacks. {@code name} is as in checkpoints. */
  static List<String> missing(SparkPlan operator, String name) {
    int times =
        name.startsWith("transformWithState") ? TIMES.length : name.contains("WithState") ? 3 : 2;
    List<String> needed = new ArrayList<>(Arrays.asList(TIMES).subList(0, times));
    if (operator.children().size() > 1) {
      needed.add(times == 2 ? "stateWatermarkPredicates" : "hasInitialState");
    }
    needed.removeIf(field -> place(operator, field) >= 0);
    return needed;
  }

  static Map<String, Long> times(SparkPlan node) {
    Map<String, Long> times = new TreeMap<>();
    for (String name : TIMES) {
      if (get(node, name) instanceof Long time) {
        times.put(name, time);
      }
    }
    return times;
  }

  /** The node with another value of a field; the same node if it has no such field. */
  static SparkPlan with(SparkPlan node, String name, Object value) {
    int place = place(node, name);
    if (place < 0) {
      return node;
    }
    Object[] values = new Object[node.productArity()];
    for (int i = 0; i < values.length; i++) {
      values[i] = i == place ? value : node.productElement(i);
    }
    return node.makeCopy(values);
  }

  /**
   * The node with the times of another batch; the same node if it has none. A join of streams gets
   * new predicates, because they have the watermark as a literal.
   */
  static SparkPlan withTimes(SparkPlan node, Map<String, Long> times) {
    SparkPlan changed = node;
    for (Map.Entry<String, Long> time : times.entrySet()) {
      changed = with(changed, time.getKey(), Option.apply(time.getValue()));
    }
    if (!(changed instanceof StreamingSymmetricHashJoinExec join)) {
      return changed;
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
    return with(join, "stateWatermarkPredicates", predicates);
  }
}
