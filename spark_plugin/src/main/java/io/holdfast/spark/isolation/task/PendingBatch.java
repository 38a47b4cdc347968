package io.holdfast.spark.isolation.task;

import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.executor.HoldfastExecutor;
import java.io.InputStream;
import java.io.Serializable;
import java.util.Map;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.Iterator;

/**
 * The pending rows of a batch.
 *
 * @param input the form that the query reads
 * @param keys groups them; null if only whole partitions are parked
 * @param ids by partition that has such rows
 * @param skipped by partition, numbers of rows that are left out, see {@link PendingRows}
 */
public record PendingBatch(
    StoreAccess stores,
    long batch,
    InputForm input,
    KeyGroups keys,
    Map<Integer, String> ids,
    Map<Integer, long[]> skipped)
    implements Serializable {
  /** The rows of an exchange, without the rows of keys that still wait. */
  public Iterator<InternalRow> delivered(int exchange, int partition, TaskContext task) {
    Iterator<InternalRow> all = rows(exchange, partition, task);
    return keys == null ? all : keys.delivered(all, partition);
  }

  Iterator<InternalRow> rows(int exchange, int partition, TaskContext task) {
    InputStream bytes =
        stores
            .open(
                partition,
                stores.first(),
                HoldfastExecutor.running().replayOf(task, partition).conf())
            .pendingInput(ids.get(partition), batch + 1);
    long[] skips = skipped.getOrDefault(partition, new long[0]);
    PendingRows rows = new PendingRows(bytes, exchange, skips, task);
    if (!rows.form.text().equals(input.text())) {
      throw new UnsupportedStateException(
          String.format(
              "The rows of batch %d that are parked for partition %d of operator %d are in"
                  + " another form than the query reads. They were written as '%s', and the"
                  + " query reads '%s'. Run it with the program and the Spark that parked them.",
              batch, partition, stores.operator(), rows.form.text(), input.text()));
    }
    return rows;
  }
}
