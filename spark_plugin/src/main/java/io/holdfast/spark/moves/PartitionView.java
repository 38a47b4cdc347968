package io.holdfast.spark.moves;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.sparklog.ViewId;
import java.io.IOException;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.util.SerializableConfiguration;

/** The rows of a version that is a view of stores of other partitions. */
public final class PartitionView {
  private PartitionView() {}

  /** Puts the rows of a view into a store with this id, which is empty. */
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
    SourceStores stores =
        new SourceStores(
            id.checkpointRootLocation(), conf, new SerializableConfiguration(hadoop), run);
    KeyHash[] hashes = KeyHash.of(operator, form, view.from(), view.to());
    view.parents().forEach(
        (partition, parent) -> {
          StateStoreProvider source = stores.provider(operator, number, partition);
          try {
            ReadStateStore reading = SourceStores.open(source, view.batch() + 1, parent, form);
            try {
              RowReader rows = new RowReader(reading, form, Long.MAX_VALUE);
              copy(rows, hashes, partition, new RowWriter(target), id.partitionId());
            } finally {
              reading.abort();
            }
          } finally {
            source.close();
          }
        });
  }

  private static void copy(
      RowReader source, KeyHash[] hashes, int parent, RowWriter target, int partition) {
    try (RowReader rows = source) {
      while (rows.next()) {
        if (hashes == null || hashes[rows.number()].of(rows.key(), parent) == partition) {
          rows.writeTo(target);
        }
      }
    }
  }
}
