package io.holdfast.spark.moves;

import com.fasterxml.jackson.databind.JsonNode;
import io.holdfast.spark.UnsupportedStateException;

/** Limits of a query, which Spark 4.0 does not have on several partitions. */
final class Limits {
  private Limits() {}

  static void requireOne(String operator, JsonNode store) {
    if (operator.equals(Operator.LIMIT) && store.path("numPartitions").asInt() > 1) {
      throw new UnsupportedStateException(
          "Spark 4.0 has no limit with checkpoint format 2, which Holdfast needs, on more than one"
              + " shuffle partition. Use a newer Spark.");
    }
  }
}
