package io.holdfast.spark.moves;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.sparklog.ViewId;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;

/** The rows of a version that is a view of stores of other partitions. */
public final class PartitionView {
  private PartitionView() {}

  /**
   * Puts the rows of a view into a store that is empty.
   *
   * @param id of the store
   */
  public static void copyInto(
      StateStore target,
      StateStoreId id,
      ViewId view,
      StateStoreConf conf,
      Configuration hadoop,
      UUID run) {
    Path checkpoint = new Path(id.checkpointRootLocation()).getParent();
    Operator operator;
    try {
      operator = Operator.read(checkpoint, id.operatorId(), view.batch(), hadoop);
    } catch (IOException e) {
      throw new HoldfastException("Cannot read what the state of " + id + " is", e);
    }
    int number = operator.numberOf(id.storeName());
    Operator.Store form = operator.stores().get(number);
    SourceStores.create(target, form);
    view.parents().forEach(
        (partition, parent) -> {
          StateStoreProvider source =
              SourceStores.provider(
                  id.checkpointRootLocation(), operator, number, partition, conf, hadoop, run);
          try {
            ReadStateStore reading = SourceStores.open(source, view.batch() + 1, parent, form);
            try {
              copy(reading, view, partition, target, id.partitionId(), operator, form);
            } finally {
              reading.abort();
            }
          } finally {
            source.close();
          }
        });
  }

  private static void copy(
      ReadStateStore reading,
      ViewId view,
      int parent,
      StateStore target,
      int partition,
      Operator operator,
      Operator.Store form) {
    Map<String, KeyHash> hashes = new HashMap<>();
    if (view.from() != view.to()) {
      form.families()
          .forEach(
              family ->
                  hashes.put(family.name(), new KeyHash(operator, form, family, view.from(), view.to())));
    }
    SourceStores.rows(
        reading,
        form,
        (family, first, key, value) -> {
          if (view.from() == view.to() || hashes.get(family.name()).of(key, parent) == partition) {
            SourceStores.put(target, family, first, key, value);
          }
        });
  }
}
