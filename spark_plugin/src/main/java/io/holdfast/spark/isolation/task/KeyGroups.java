package io.holdfast.spark.isolation.task;

import io.holdfast.spark.executor.HoldfastExecutor;
import io.holdfast.spark.executor.Replay;
import java.io.Serializable;
import java.util.Arrays;
import java.util.List;
import java.util.function.Predicate;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.Attribute;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection$;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The keys of a partition in groups, by their hash without the part that chose the partition. Group
 * 1 has all keys, 2 and 3 the keys whose last bit is 0 and 1. In general, the number of a group has
 * the last bits of its keys after its highest bit.
 */
public record KeyGroups(Expression hash, Seq<Attribute> columns, int partitions)
    implements Serializable {
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
  public Iterator<InternalRow> delivered(Iterator<InternalRow> rows, int partition) {
    Replay replay = HoldfastExecutor.running().replayOf(TaskContext.get(), partition);
    if (replay == null || replay.waits().isEmpty()) {
      return rows;
    }
    Predicate<InternalRow> waits = in(replay.waits());
    return rows.filter(row -> !waits.test(row));
  }
}
