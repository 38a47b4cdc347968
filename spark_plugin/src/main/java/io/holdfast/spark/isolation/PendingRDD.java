package io.holdfast.spark.isolation;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.HoldfastPlugin;
import io.holdfast.spark.UnsupportedStateException;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.util.List;
import java.util.Map;
import java.util.NoSuchElementException;
import java.util.stream.IntStream;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.util.TaskCompletionListener;
import scala.collection.AbstractIterator;
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

  PendingRDD(
      SparkContext spark,
      StoreAccess stores,
      int count,
      long batch,
      InputForm input,
      int exchange,
      Map<Integer, String> ids) {
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
  }

  private record Numbered(int index) implements OwnPartition {}

  @Override
  public Partition[] getPartitions() {
    return IntStream.range(0, count).mapToObj(Numbered::new).toArray(Partition[]::new);
  }

  @Override
  public Iterator<InternalRow> compute(Partition split, TaskContext task) {
    DataInputStream in =
        new DataInputStream(
            new BufferedInputStream(
                stores
                    .open(
                        split.index(),
                        stores.first(),
                        HoldfastPlugin.executor().replayOf(task).conf())
                    .pendingInput(ids.get(split.index()), batch + 1)));
    task.addTaskCompletionListener((TaskCompletionListener) ended -> close(in));
    try {
      String written = in.readUTF();
      if (!written.equals(input.text())) {
        throw new UnsupportedStateException(
            String.format(
                "The rows of batch %d that are parked for partition %d of operator %d are in"
                    + " another form than the query reads. They were written as '%s', and the"
                    + " query reads '%s'. Run it with the program and the Spark that parked them.",
                batch, split.index(), stores.operator(), written, input.text()));
      }
    } catch (IOException e) {
      throw unreadable(e);
    }
    return new Rows(in);
  }

  private static void close(DataInputStream in) {
    try {
      in.close();
    } catch (IOException e) {
      throw unreadable(e);
    }
  }

  private static HoldfastException unreadable(IOException e) {
    return new HoldfastException("Cannot read parked rows", e);
  }

  private final class Rows extends AbstractIterator<InternalRow> {
    private final DataInputStream in;
    private UnsafeRow next;

    Rows(DataInputStream in) {
      this.in = in;
      advance();
    }

    private void advance() {
      try {
        next = null;
        for (int from = in.read(); from >= 0 && next == null; ) {
          byte[] bytes = new byte[in.readInt()];
          in.readFully(bytes);
          if (from == exchange) {
            next = new UnsafeRow(input.columns()[exchange]);
            next.pointTo(bytes, bytes.length);
          } else {
            from = in.read();
          }
        }
      } catch (IOException e) {
        throw unreadable(e);
      }
    }

    @Override
    public boolean hasNext() {
      return next != null;
    }

    @Override
    public InternalRow next() {
      if (next == null) {
        throw new NoSuchElementException("no more parked rows");
      }
      UnsafeRow row = next;
      advance();
      return row;
    }
  }
}
