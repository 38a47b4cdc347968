package io.holdfast.spark.isolation;

import io.holdfast.spark.HoldfastPlugin;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.store.NativeStore;
import java.io.InputStream;
import java.util.List;
import java.util.Map;
import java.util.stream.IntStream;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/** The rows that were parked in one batch, in the place of the exchange that they came from. */
final class PendingRDD extends RDD<InternalRow> {
  private static final long serialVersionUID = 1L;

  private final StoreAccess stores;
  private final int count;
  private final long batch;
  private final InputForm input;

  /** The exchange whose rows these are. */
  private final int exchange;

  /** By partition whose rows of the batch are pending, its id. */
  private final Map<Integer, String> ids;

  /** By partition, numbers of rows that do not come any more, see {@link PendingRows}. */
  private final Map<Integer, long[]> skipped;

  PendingRDD(
      SparkContext spark,
      StoreAccess stores,
      int count,
      long batch,
      InputForm input,
      int exchange,
      Map<Integer, String> ids,
      Map<Integer, long[]> skipped) {
    super(
        spark,
        CollectionConverters.asScala(List.<org.apache.spark.Dependency<?>>of()).toSeq(),
        ClassTag$.MODULE$.apply(InternalRow.class));
    this.stores = stores;
    this.count = count;
    this.batch = batch;
    this.input = input;
    this.exchange = exchange;
    this.ids = ids;
    this.skipped = skipped;
  }

  private record Numbered(int index) implements OwnPartition {}

  @Override
  public Partition[] getPartitions() {
    return IntStream.range(0, count).mapToObj(Numbered::new).toArray(Partition[]::new);
  }

  @Override
  public Iterator<InternalRow> compute(Partition split, TaskContext task) {
    int partition = split.index();
    NativeStore store =
        stores.open(
            partition, stores.first(), HoldfastPlugin.executor().replayOf(task).conf());
    InputStream bytes = store.pendingInput(ids.get(partition), batch + 1);
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
    return new NextRows(rows::next);
  }
}
