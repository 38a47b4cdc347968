package io.holdfast.spark.minor;

import java.util.List;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import scala.jdk.javaapi.CollectionConverters;

/** Names of the stores that an operator has for each partition, in the order of their ids. */
public final class StoreNames {
  private StoreNames() {}

  public static List<String> of(StateStoreWriter operator) {
    return CollectionConverters.asJava(operator.stateStoreNames());
  }
}
