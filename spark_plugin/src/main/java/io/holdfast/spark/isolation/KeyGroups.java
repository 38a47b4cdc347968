package io.holdfast.spark.isolation;

import io.holdfast.spark.executor.HoldfastExecutor;
import io.holdfast.spark.executor.Replay;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.Predicate;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.Pmod;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.TimeMode;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The keys of a partition in groups. A key belongs to them by its hash without the part that chose
 * the partition. Group 1 has all keys, 2 and 3 those whose last bit is 0 and 1, and so on: behind
 * its highest bit the number of a group has the last bits of its keys.
 *
 * @param hash of the key of a row
 * @param columns of a row
 */
record KeyGroups(Expression hash, Seq<Attribute> columns, int partitions)
    implements GuardExec.Execution, Serializable {
  static final List<Integer> ALL = List.of(1);

  /** A group with so many bits is one key, almost always, and is not divided any more. */
  private static final int BITS_MAX = 16;

  /** If so many groups wait, none is divided: so many keys do not fail for themselves. */
  private static final int GROUPS_MAX = 64;

  /** Operators that read nothing but the state of keys in their input, if nothing ends by time. */
  private static final String OPERATORS =
      "stateStoreSave|dedupe|flatMapGroupsWithState|applyInPandasWithState|transformWithState.*";

  /** The groups of an operator with this name; null if its keys cannot be processed apart. */
  static KeyGroups of(SparkPlan operator, String name, List<SparkPlan> exchanges) {
    SparkPlan exchange = exchanges.get(0);
    Object timeout = Fields.get(operator, "timeoutConf");
    Object timeMode = Fields.get(operator, "timeMode");
    boolean hasWatermark =
        exchange.output().exists(column -> column.metadata().contains("spark.watermarkDelayMs"));
    boolean apart =
        name.matches(OPERATORS)
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

  /** These groups without the first one, which was tried and failed; its halves come last. */
  static List<Integer> divided(List<Integer> groups) {
    List<Integer> next = new ArrayList<>(groups.subList(1, groups.size()));
    int tried = groups.get(0);
    int bit = Integer.highestOneBit(tried);
    boolean divides = bit < 1 << BITS_MAX && groups.size() < GROUPS_MAX;
    next.addAll(divides ? List.of(tried + bit, tried + 2 * bit) : List.of(tried));
    return List.copyOf(next);
  }

  /** The share of all keys that is in these groups, none of which has a key of another. */
  static double share(List<Integer> groups) {
    return groups.stream().mapToDouble(group -> 1.0 / Integer.highestOneBit(group)).sum();
  }

  /** Tests if the key of a row is in one of these groups. */
  Predicate<InternalRow> in(List<Integer> groups) {
    UnsafeProjection projection =
        UnsafeProjection$.MODULE$.create(
            CollectionConverters.asScala(List.of(hash)).toSeq(), columns);
    int[] all = groups.stream().mapToInt(group -> group).toArray();
    return row -> {
      int rest = Math.floorDiv(projection.apply(row).getInt(0), partitions);
      return Arrays.stream(all)
          .anyMatch(
              group -> {
                int bit = Integer.highestOneBit(group);
                return (rest & (bit - 1) | bit) == group;
              });
    };
  }

  /** Leaves out the rows of keys of a partition that wait in the task of its replay. */
  Iterator<InternalRow> delivered(Iterator<InternalRow> rows, int partition) {
    Replay replay = HoldfastExecutor.running().replayOf(TaskContext.get(), partition);
    if (replay == null || replay.waits().isEmpty()) {
      return rows;
    }
    Predicate<InternalRow> waits = in(replay.waits());
    return rows.filter(row -> !waits.test(row));
  }

  /** The rows of the batch itself. */
  @Override
  public RDD<InternalRow> execute(SparkPlan exchange) {
    return exchange
        .execute()
        .toJavaRDD()
        .mapPartitionsWithIndex(
            (partition, rows) ->
                CollectionConverters.asJava(
                    delivered(CollectionConverters.asScala(rows), partition)),
            true)
        .rdd();
  }

  /** The text that {@code explain} shows. */
  @Override
  public String toString() {
    return "keys that do not wait";
  }
}
