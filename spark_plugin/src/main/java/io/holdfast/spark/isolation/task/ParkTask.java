package io.holdfast.spark.isolation.task;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.minor.SparkCalls;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.store.NativeStore;
import io.holdfast.spark.store.Parking;
import io.holdfast.spark.executor.Replay;
import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.Serializable;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.atomic.LongAdder;
import java.util.function.Predicate;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkEnv;
import org.apache.spark.TaskContext;
import org.apache.spark.network.util.JavaUtils;
import org.apache.spark.serializer.SerializerInstance;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOpStateStoreCheckpointInfo;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.util.CollectionAccumulator;
import scala.Option;
import scala.collection.Iterator;
import scala.reflect.ClassTag$;
import scala.reflect.ClassTag;

/**
 * Parks a partition in its task: the input becomes durable with the state, and the id of both is
 * reported like the id of a commit.
 *
 * @param ids receives the ids of the batch, as from the operator itself
 */
public record ParkTask(
    StoreAccess stores,
    long version,
    InputForm input,
    KeyGroups keys,
    long bytesMax,
    ParkedMetrics metrics,
    CollectionAccumulator<StatefulOpStateStoreCheckpointInfo> ids)
    implements Serializable {
  private static final int BUFFER_BYTES = 1 << 20;
  private static final ClassTag<ParkTask> CLASS = ClassTag$.MODULE$.apply(ParkTask.class);

  byte[] bytes() {
    SerializerInstance serializer = SparkEnv.get().closureSerializer().newInstance();
    return JavaUtils.bufferToArray(serializer.serialize(this, CLASS));
  }

  static ParkTask read(byte[] bytes) {
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    SerializerInstance serializer = SparkEnv.get().closureSerializer().newInstance();
    return serializer.deserialize(ByteBuffer.wrap(bytes), loader, CLASS);
  }

  /** Null before the first batch. */
  public static String[] idsOf(StatefulOperatorStateInfo state, int partition) {
    return state.getStateStoreCkptId(partition).getOrElse(() -> null);
  }

  /**
   * @param base ids of the stores; null before the first batch
   * @param rows by exchange
   * @param settle makes durable that the partition is parked, after its input is durable
   */
  void park(
      int partition,
      String[] base,
      List<Iterator<InternalRow>> rows,
      DriverReply.Decision decision,
      Runnable settle) {
    Configuration conf = decision.conf();
    List<String> parked = new ArrayList<>();
    for (String name : stores.names()) {
      String own = base == null ? null : base[parked.size()];
      NativeStore store = stores.open(partition, name, conf);
      // The first store has the input of all stores.
      boolean first = name.equals(stores.first());
      try (Parking parking = store.park(version, own)) {
        long count =
            first
                ? write(
                    rows,
                    parking,
                    metrics.waiting(store, own),
                    partition,
                    decision.failure())
                : 0;
        parked.add(parking.finish(count));
        // Files of this batch cannot be read before it ends, if they are on an object store.
        metrics.rows().add(count);
        metrics.bytes().add(parking.bytes());
      } catch (IOException e) {
        throw new HoldfastException("Cannot park partition " + partition, e);
      }
      metrics.reportKeys(name, store, parked.get(parked.size() - 1), own);
    }
    settle.run();
    metrics.partitions().add(1);
    ids.add(
        new StatefulOpStateStoreCheckpointInfo(
            partition,
            version + 1,
            Option.apply(parked.toArray(String[]::new)),
            Option.apply(base)));
    for (String name : stores.names()) {
      StateStoreId id = stores.id(partition, name);
      SparkCalls.reportCommit(StoreAccess.conf(), id, version + 1, conf);
    }
  }

  /**
   * Stores the rows of keys that wait. The same keys as before wait, so the commit of the replay
   * names the pending input unchanged.
   *
   * @param base id of the first store
   * @param own rows of the batch itself
   * @return no passes
   */
  List<Integer> keepAll(String base, Iterator<InternalRow> own, Replay replay) {
    NativeStore store = stores.open(replay.partition(), stores.first(), replay.conf());
    long bytes = 0;
    for (NativeStore.Pending input : store.pending(base)) {
      if (input.rows() > 0) {
        replay.keeps(Native.inputAlone(base, input.version()));
        metrics.rows().add(input.rows());
        metrics.bytes().add(input.bytes());
        bytes += input.bytes();
      }
    }
    keepOwn(store, own, bytes, replay);
    return new ArrayList<>();
  }

  /**
   * Stores again the rows of keys that still wait, and the rows of the batch itself. The commit of
   * the replay names them.
   *
   * @param passes with input of the partition
   * @param pending by pass, its input
   * @param own rows of the batch itself
   * @return the passes that have rows of other keys
   */
  List<Integer> keep(
      List<Integer> passes,
      List<PendingBatch> pending,
      Iterator<InternalRow> own,
      Replay replay,
      TaskContext task) {
    Predicate<InternalRow> waits = keys.in(replay.waits());
    int partition = replay.partition();
    NativeStore store = stores.open(partition, stores.first(), replay.conf());
    List<Integer> due = new ArrayList<>();
    long bytes = 0;
    for (int pass : passes) {
      PendingBatch batch = pending.get(pass);
      LongAdder others = new LongAdder();
      Iterator<InternalRow> rows =
          batch
              .rows(0, partition, task)
              .filter(
                  row -> {
                    boolean stays = waits.test(row);
                    others.add(stays ? 0 : 1);
                    return stays;
                  });
      if (rows.hasNext()) {
        bytes += keep(store, batch.batch() + 1, rows, bytes, replay);
      }
      if (others.sum() > 0) {
        due.add(pass);
      }
    }
    keepOwn(store, own, bytes, replay);
    return due;
  }

  private void keepOwn(
      NativeStore store, Iterator<InternalRow> own, long bytesWaiting, Replay replay) {
    Iterator<InternalRow> rows = own.filter(keys.in(replay.waits())::test);
    if (bytesWaiting > 0 || rows.hasNext()) {
      // The input of the version itself is always the last one.
      keep(store, version + 1, rows, bytesWaiting, replay);
      metrics.partitions().add(1);
    }
  }

  /** Returns the bytes that were stored. */
  private long keep(
      NativeStore store, long of, Iterator<InternalRow> rows, long bytesWaiting, Replay replay) {
    try (Parking parking = store.keep(of, version + 1)) {
      long count = write(
              List.of(rows), parking, bytesWaiting, replay.partition(), replay.failure());
      replay.keeps(parking.finish(count));
      metrics.rows().add(count);
      metrics.bytes().add(parking.bytes());
      return parking.bytes();
    } catch (IOException e) {
      throw new HoldfastException("Cannot keep parked rows of version " + of, e);
    }
  }

  /** Writes all rows; returns their number. The failure is of the partition's task. */
  private long write(
      List<Iterator<InternalRow>> rows,
      Parking parking,
      long bytesWaiting,
      int partition,
      String failure)
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
          left = flush(buffer, parking, left, partition, failure);
        }
      }
    }
    flush(buffer, parking, left, partition, failure);
    return count;
  }

  private long flush(
      ByteArrayOutputStream buffer,
      Parking parking,
      long bytesLeft,
      int partition,
      String failure) {
    if (buffer.size() > bytesLeft) {
      throw new HoldfastException(
          String.format(
              "Partition %d of operator %d is not parked: its parked input would be larger than"
                  + " isolation_max_bytes (%d bytes). The last failure of its task: %s",
              partition, stores.operator(), bytesMax, failure));
    }
    parking.append(buffer.toByteArray(), buffer.size());
    long left = bytesLeft - buffer.size();
    buffer.reset();
    return left;
  }
}
