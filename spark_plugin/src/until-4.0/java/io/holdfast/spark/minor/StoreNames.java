package io.holdfast.spark.minor;

import java.util.List;
import org.apache.spark.sql.execution.streaming.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.StreamingSymmetricHashJoinExec;
import org.apache.spark.sql.execution.streaming.StreamingSymmetricHashJoinHelper.JoinSide;
import org.apache.spark.sql.execution.streaming.StreamingSymmetricHashJoinHelper.LeftSide$;
import org.apache.spark.sql.execution.streaming.StreamingSymmetricHashJoinHelper.RightSide$;
import org.apache.spark.sql.execution.streaming.state.SymmetricHashJoinStateManager;
import scala.jdk.javaapi.CollectionConverters;

/** Names of the stores that an operator has for each partition, in the order of their ids. */
public final class StoreNames {
  private StoreNames() {}

  public static List<String> of(StateStoreWriter operator) {
    return operator instanceof StreamingSymmetricHashJoinExec
        ? CollectionConverters.asJava(
            SymmetricHashJoinStateManager.allStateStoreNames(
                CollectionConverters.asScala(
                        List.<JoinSide>of(LeftSide$.MODULE$, RightSide$.MODULE$))
                    .toSeq()))
        : List.of("default");
  }
}
