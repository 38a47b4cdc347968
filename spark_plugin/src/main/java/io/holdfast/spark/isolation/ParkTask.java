package io.holdfast.spark.isolation;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.minor.SparkCalls;
import io.holdfast.spark.store.NativeStore;
import io.holdfast.spark.store.Parking;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOpStateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.util.CollectionAccumulator;
import scala.Option;
import scala.collection.Iterator;

/**
 * Parks a partition in its task: the input becomes durable beside the state, and the id of both is
 * reported as that of a commit.
 *
 * @param ids receives the ids of the batch, as from the operator itself
 */
record ParkTask(
    StoreAccess stores,
    long version,
    InputForm input,
    long bytesMax,
    ParkedMetrics metrics,
    CollectionAccumulator<StatefulOpStateStoreCheckpointInfo> ids)
    implements Serializable {
  private static final int BUFFER_BYTES = 1 << 20;

  static ParkTask of(Guard guard, StateStoreWriter operator) {
    return new ParkTask(
        StoreAccess.of(operator),
        guard.state().storeVersion(),
        guard.input(),
        guard.conf().isolationMaxBytes,
        ParkedMetrics.of(operator),
        operator.checkpointInfoAccumulator());
  }

  /** The ids of a partition's stores; null before the first batch. */
  static String[] idsOf(StatefulOperatorStateInfo state, int partition) {
    return state.getStateStoreCkptId(partition).getOrElse(() -> null);
  }

  /**
   * @param rows by exchange
   */
  void park(GuardRDD.Split partition, List<Iterator<InternalRow>> rows, Configuration conf) {
    List<String> parked = new ArrayList<>();
    for (String name : stores.names()) {
      String base = partition.base() == null ? null : partition.base()[parked.size()];
      NativeStore store = stores.open(partition.index(), name, conf);
      // The first store has the input of all.
      boolean first = name.equals(stores.first());
      try (Parking parking = store.park(version, base)) {
        long count = first ? write(rows, parking, metrics.waiting(store, base)) : 0;
        parked.add(parking.finish(count));
        // Files of this batch cannot be read before it ends, if they are on an object store.
        metrics.rows().add(count);
        metrics.bytes().add(parking.bytes());
      } catch (IOException e) {
        throw new HoldfastException("Cannot park partition " + partition.index(), e);
      }
      metrics.reportKeys(name, store, parked.get(parked.size() - 1), base);
    }
    metrics.partitions().add(1);
    ids.add(
        new StatefulOpStateStoreCheckpointInfo(
            partition.index(),
            version + 1,
            Option.apply(parked.toArray(String[]::new)),
            Option.apply(partition.base())));
    for (String name : stores.names()) {
      StateStoreId id = stores.id(partition.index(), name);
      SparkCalls.reportCommit(StoreAccess.conf(), id, version + 1, conf);
    }
  }

  /** Writes all rows; returns their number. */
  private long write(List<Iterator<InternalRow>> rows, Parking parking, long bytesWaiting)
      throws IOException {
    ByteArrayOutputStream buffer = new ByteArrayOutputStream();
    DataOutputStream out = new DataOutputStream(buffer);
    input.write(out);
    long left = bytesMax - bytesWaiting;
    long count = 0;
    for (int exchange = 0; exchange < rows.size(); exchange++) {
      for (; rows.get(exchange).hasNext(); count++) {
        byte[] row = ((UnsafeRow) rows.get(exchange).next()).getBytes();
        out.writeByte(exchange);
        out.writeInt(row.length);
        out.write(row);
        if (buffer.size() >= BUFFER_BYTES) {
          left = flush(buffer, parking, left);
        }
      }
    }
    flush(buffer, parking, left);
    return count;
  }

  private long flush(ByteArrayOutputStream buffer, Parking parking, long bytesLeft) {
    if (buffer.size() > bytesLeft) {
      throw new HoldfastException(
          String.format(
              "Partition %d of operator %d is not parked: its parked input would be larger than"
                  + " isolation_max_bytes (%d bytes)",
              TaskContext.getPartitionId(), stores.operator(), bytesMax));
    }
    parking.append(buffer.toByteArray(), buffer.size());
    long left = bytesLeft - buffer.size();
    buffer.reset();
    return left;
  }
}
