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
 * Finds the partition of a key of state, as the shuffle in front of the operator does: by Spark's
 * own hash of the columns that the operator groups by.
 */
final class KeyHash {
  private static final String SESSIONS = "sessionWindowStateStoreSaveExec";
  private static final String JOIN = "symmetricHashJoin";
  private static final String TRANSFORM_WITH_STATE = "transformWithState";

  private static final Set<String> OTHERS =
      Set.of(
          "stateStoreSave",
          "dedupe",
          "dedupeWithinWatermark",
          "flatMapGroupsWithState",
          "applyInPandasWithState",
          Operator.LIMIT);

  /** Rows of a join have a number behind the columns of the key. */
  private static final String NUMBERED_ROWS = "keyWithIndexToValue";

  private final String what;
  private final int from;
  private final UnsafeProjection partitions;

  /**
   * @param from the old number of partitions
   * @param to the new one
   */
  KeyHash(Operator operator, Operator.Store store, Operator.Family family, int from, int to) {
    String name = store.columns() ? family.name() : store.name();
    what = String.format("operator %d (%s), store %s", operator.id(), operator.name(), name);
    this.from = from;
    List<Expression> columns = columns(operator.name(), name, family);
    partitions =
        UnsafeProjection.create(
            CollectionConverters.asScala(List.of(hash(columns, from), hash(columns, to))).toSeq());
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

  /** The columns of a key that the operator groups by. */
  private static List<Expression> columns(String operator, String name, Operator.Family family) {
    StructType key = family.key();
    boolean numbered = operator.equals(JOIN) && name.endsWith(NUMBERED_ROWS);
    if (operator.equals(SESSIONS) || numbered) {
      return all(key).subList(0, key.length() - 1);
    }
    if (!operator.startsWith(TRANSFORM_WITH_STATE)) {
      if (!OTHERS.contains(operator) && !operator.equals(JOIN)) {
        throw new UnsupportedStateException(
            String.format(
                "Holdfast does not know how Spark partitions the operator %s, so the checkpoint"
                    + " cannot get another number of partitions. Nothing was changed.",
                operator));
      }
      return all(key);
    }
    // A map has the keys of its entries behind the grouping key. Timers and the index of times to
    // live have a time before it, or behind it.
    boolean isMap = isEntryOfMap(key);
    boolean hasTime = family.internal() && key.length() > 1 && structAt(key) >= 0;
    if (!isMap && !hasTime) {
      return all(key);
    }
    int place = isMap ? 0 : structAt(key);
    StructType grouping = (StructType) key.apply(place).dataType();
    Expression struct = column(key, place);
    if (isEntryOfMap(grouping)) {
      return fields(new GetStructField(struct, 0, Option.empty()), grouping.apply(0));
    }
    return fields(struct, key.apply(place));
  }

  private static boolean isEntryOfMap(StructType key) {
    return key.length() == 2
        && List.of(key.fieldNames()).equals(List.of("key", "userKey"))
        && key.apply(0).dataType() instanceof StructType;
  }

  /** The first column that is a struct, of the first two; -1 if there is none. */
  private static int structAt(StructType key) {
    return IntStream.range(0, 2)
        .filter(place -> key.apply(place).dataType() instanceof StructType)
        .findFirst()
        .orElse(-1);
  }

  private static List<Expression> all(StructType key) {
    return IntStream.range(0, key.length()).mapToObj(place -> column(key, place)).toList();
  }

  private static Expression column(StructType key, int place) {
    StructField field = key.apply(place);
    return new BoundReference(place, field.dataType(), field.nullable());
  }

  private static List<Expression> fields(Expression struct, StructField field) {
    StructType type = (StructType) field.dataType();
    return IntStream.range(0, type.length())
        .mapToObj(place -> (Expression) new GetStructField(struct, place, Option.empty()))
        .toList();
  }

  /**
   * Returns the new partition of a key that an old partition has.
   *
   * @throws UnsupportedStateException if the key does not belong to the old partition, so that Spark
   *     does not partition the operator by this hash
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
