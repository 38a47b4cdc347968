package io.holdfast.spark.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.holdfast.spark.UnsupportedStateException;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;

class KeyHashTest {
  private static final StructType KEY =
      new StructType().add("user", DataTypes.LongType).add("begin", DataTypes.LongType);

  /** An operator with one store of one column family, whose keys have two columns. */
  private static Operator operator(String name, String store, String variable) {
    Operator.Family family = new Operator.Family(store, KEY, KEY, null, variable, false, false);
    return new Operator(0, name, List.of(new Operator.Store(store, true, List.of(family))), null);
  }

  private static KeyHash hash(Operator operator, int from, int to) {
    return KeyHash.of(operator, operator.stores().get(0), from, to)[0];
  }

  private static UnsafeRow key(long user, long begin) {
    return UnsafeProjection.create(KEY)
        .apply(new GenericInternalRow(new Object[] {user, begin}))
        .copy();
  }

  @Test
  void aKeyGoesWhereAQueryOnTheNewPartitionsLooksForIt() {
    Operator operator = operator("stateStoreSave", "default", "");
    KeyHash first = hash(operator, 1, 5);
    KeyHash second = hash(operator, 5, 7);
    KeyHash direct = hash(operator, 1, 7);
    for (long user = 0; user < 50; user++) {
      UnsafeRow key = key(user, -user);
      assertEquals(direct.of(key, 0), second.of(key, first.of(key, 0)));
    }
  }

  @Test
  void aKeyInAPartitionThatItsHashDoesNotBelongToIsRefused() {
    Operator operator = operator("dedupe", "default", "");
    int partition = hash(operator, 1, 5).of(key(1, 2), 0);
    Exception refused =
        assertThrows(
            UnsupportedStateException.class,
            () -> hash(operator, 5, 7).of(key(1, 2), (partition + 1) % 5));
    assertTrue(refused.getMessage().contains("but its hash belongs to partition " + partition));
  }

  @ParameterizedTest
  @CsvSource({
    "sessionWindowStateStoreSaveExec, default",
    "symmetricHashJoin, left-keyWithIndexToValue",
    "symmetricHashJoin, right-tsWithKey",
  })
  void theLastColumnDoesNotCountWhereOperatorsDoNotGroupByIt(String name, String store) {
    KeyHash hash = hash(operator(name, store, ""), 1, 1000);
    for (long user = 0; user < 20; user++) {
      assertEquals(hash.of(key(user, 1), 0), hash.of(key(user, 2), 0));
    }
  }

  @ParameterizedTest
  @CsvSource({
    "another, default, ''",
    "symmetricHashJoin, left-another, ''",
    "transformWithStateExec, queue, QueueState",
    "transformWithStateExec, $another_value, ValueState",
  })
  void stateThatIsNotKnownIsRefusedEvenWithoutARow(String name, String store, String variable) {
    Exception refused =
        assertThrows(
            UnsupportedStateException.class, () -> hash(operator(name, store, variable), 1, 4));
    assertTrue(
        refused.getMessage().startsWith("Holdfast does not know how Spark partitions the state of"));
  }

  @Test
  void nothingIsHashedIfTheNumberStays() {
    Operator operator = operator("another", "default", "");
    assertNull(KeyHash.of(operator, operator.stores().get(0), 4, 4));
  }

  @Test
  void limitsAndAggregationsWithoutAKeyHaveOnePartition() {
    assertTrue(KeyHash.isSingle(operator("globalLimit", "default", "")));
    Operator.Family total =
        new Operator.Family("default", new StructType(), KEY, null, "", false, false);
    Operator.Store store = new Operator.Store("default", false, List.of(total));
    assertTrue(KeyHash.isSingle(new Operator(0, "stateStoreSave", List.of(store), null)));
    assertFalse(KeyHash.isSingle(operator("stateStoreSave", "default", "")));
  }
}
