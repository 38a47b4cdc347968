package io.holdfast.spark.moves;

import io.holdfast.spark.Native;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.spark.sql.classic.SparkSession;

/** Publishes a batch with the state and the positions of an earlier one. Writes no state. */
public final class Rollback extends Move {
  public Rollback(SparkSession session, Plan plan) {
    super(session, plan);
  }

  /** Gives the ids of the earlier batch the version of the new one. */
  public void ids() {
    Map<Long, List<List<String>>> made = new TreeMap<>();
    for (var operator : plan.base().ids().properties()) {
      List<List<String>> partitions = new ArrayList<>();
      for (var stores : operator.getValue()) {
        List<String> ids = new ArrayList<>();
        stores.forEach(id -> ids.add(Native.idAt(id.asText(), plan.number() + 1)));
        partitions.add(ids);
      }
      made.put(Long.valueOf(operator.getKey()), partitions);
    }
    takeOver(conf(plan.newest().conf(), Map.of()));
    made(made);
  }

  @Override
  public long partitions() {
    return 0;
  }

  @Override
  void beforeCommit() {}

  @Override
  void clean() {}
}
