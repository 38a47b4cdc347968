package io.holdfast.spark.moves;

import io.holdfast.spark.UnsupportedStateException;
import java.util.List;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.spark.sql.catalyst.expressions.BoundReference;
import org.apache.spark.sql.catalyst.expressions.Expression;
import org.apache.spark.sql.catalyst.expressions.GetStructField;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.plans.physical.HashPartitioning;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Finds the partition of a key like the shuffle before the operator: by Spark's own hash of the
 * columns that the operator groups by.
 */
final class KeyHash {
  /** Their keys are the columns that they group by. */
  private static final Set<String> PLAIN =
      Set.of(
          "stateStoreSave",
          "dedupe",
          "dedupeWithinWatermark",
          "flatMapGroupsWithState",
          "applyInPandasWithState");

  private static final String SESSIONS = "sessionWindowStateStoreSaveExec";

  private static final Set<String> TRANSFORM_WITH_STATE =
      Set.of(
          "transformWithStateExec", "transformWithStateInPandasExec", "transformWithStateInPySparkExec");

  private final String what;
  private final int from;
  private final UnsafeProjection partitions;

  private KeyHash(
      Operator operator, Operator.Store store, Operator.Family family, int from, int to) {
    String name = store.columns() ? family.name() : store.name();
    what = String.format("operator %d (%s), store %s", operator.id(), operator.name(), name);
    this.from = from;
    List<Expression> columns = columns(operator.name(), name, family);
    if (columns.isEmpty()) {
      throw new UnsupportedStateException(
          String.format(
              "Holdfast does not know how Spark partitions the state of %s, so the checkpoint cannot"
                  + " get another number of partitions. Nothing was changed.",
              what));
    }
    partitions =
        UnsafeProjection.create(
            CollectionConverters.asScala(List.of(hash(columns, from), hash(columns, to))).toSeq());
  }

  /** By number, the hashes of the column families of a store; null if no partition changes. */
  static KeyHash[] of(Operator operator, Operator.Store store, int from, int to) {
    return from == to
        ? null
        : store.families().stream()
            .map(family -> new KeyHash(operator, store, family, from, to))
            .toArray(KeyHash[]::new);
  }

  private static Expression hash(List<Expression> columns, int partitions) {
    return new HashPartitioning(CollectionConverters.asScala(columns).toSeq(), partitions)
        .partitionIdExpression();
  }

  /** True if the operator has one partition, whatever the number of the query is. */
  static boolean isSingle(Operator operator) {
    return operator.name().equals(Operator.LIMIT)
        || operator.stores().get(0).families().get(0).key().isEmpty();
  }

  /**
   * The columns of a key that the operator groups by; none if they are not known. The form of a key
   * does not show them, because columns of a query can have any form and any name.
   */
  private static List<Expression> columns(String operator, String name, Operator.Family family) {
    StructType key = family.key();
    if (PLAIN.contains(operator)) {
      return all(key);
    }
    if (operator.equals(SESSIONS)) {
      // The begin of the session follows them.
      return withoutLast(key);
    }
    if (operator.equals(Operator.JOIN)) {
      return switch (name.replaceFirst("^(left|right)-", "")) {
        case "keyToNumValues" -> all(key);
        // The number of a row, or its time, follows them.
        case "keyWithIndexToValue", "keyWithTsToValues", "tsWithKey" -> withoutLast(key);
        default -> List.of();
      };
    }
    return TRANSFORM_WITH_STATE.contains(operator)
        ? ofVariable(name, key, family.variable())
        : List.of();
  }

  /** The columns in a key of {@code transformWithState}, by Spark's name of its column family. */
  private static List<Expression> ofVariable(String name, StructType key, String type) {
    boolean isMap = type.equals(Operator.MAP);
    boolean isPlain = type.equals(Operator.VALUE) || type.equals(Operator.LIST);
    if (!name.startsWith("$")) {
      // In a map, the keys of its entries follow them.
      return isPlain ? all(key) : isMap ? fields(key, 0) : List.of();
    }
    if (name.matches("\\$(proc|event)Timers_keyToTimestamp")) {
      return fields(key, 0);
    }
    if (name.matches("\\$(proc|event)Timers_timestampToKey")) {
      return fields(key, 1);
    }
    if (name.startsWith("$ttl_")) {
      // The key of a value, a list or an entry follows the end of its life.
      return isPlain ? fields(key, 1) : isMap ? fields(key, 1, 0) : List.of();
    }
    return name.matches("\\$(min|count|rowCounter)_.*") && isPlain ? all(key) : List.of();
  }

  private static List<Expression> all(StructType key) {
    return IntStream.range(0, key.length()).mapToObj(place -> column(key, place)).toList();
  }

  private static List<Expression> withoutLast(StructType key) {
    return all(key).subList(0, key.length() - 1);
  }

  /** The columns of a struct in a key; none if there is no struct. */
  private static List<Expression> fields(StructType key, int... places) {
    Expression struct = column(key, places[0]);
    for (int depth = 1; depth < places.length && struct.dataType() instanceof StructType; depth++) {
      struct = new GetStructField(struct, places[depth], Option.empty());
    }
    if (!(struct.dataType() instanceof StructType type)) {
      return List.of();
    }
    Expression found = struct;
    return IntStream.range(0, type.length())
        .mapToObj(place -> (Expression) new GetStructField(found, place, Option.empty()))
        .toList();
  }

  private static Expression column(StructType key, int place) {
    StructField field = key.apply(place);
    return new BoundReference(place, field.dataType(), field.nullable());
  }

  /**
   * Returns the new partition of a key that an old partition has.
   *
   * @throws UnsupportedStateException if the key does not belong to the old partition, so that
   *     Spark does not partition the operator by this hash
   */
  int of(UnsafeRow key, int partition) {
    UnsafeRow found = partitions.apply(key);
    if (found.getInt(0) != partition) {
      throw new UnsupportedStateException(
          String.format(
              "A key of %s is in partition %d of %d, but its hash belongs to partition %d: Spark"
                  + " does not partition this state by a hash that Holdfast knows. The checkpoint"
                  + " cannot get another number of partitions. Nothing was changed.",
              what, partition, from, found.getInt(0)));
    }
    return found.getInt(1);
  }
}
