package io.holdfast.spark.isolation.task;

import io.holdfast.spark.HoldfastException;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.NoSuchElementException;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.util.TaskCompletionListener;
import scala.collection.AbstractIterator;

/** The pending rows of one exchange from one batch, in the order of their numbers. */
public final class PendingRows extends AbstractIterator<InternalRow> {
  final InputForm form;
  private final DataInputStream in;
  private final int exchange;
  private final int columns;
  private final long[] skipped; // bounds of ranges of numbers, ascending

  private int range;
  private long number = -1;
  private UnsafeRow next; // the row with that number, unless it was returned

  /** {@code in} is closed when the task ends; {@code skipped} are bounds of ranges to leave out. */
  public PendingRows(InputStream in, int exchange, long[] skipped, TaskContext task) {
    this.in = new DataInputStream(new BufferedInputStream(in));
    this.exchange = exchange;
    this.skipped = skipped;
    task.addTaskCompletionListener((TaskCompletionListener) ended -> close());
    try {
      form = InputForm.read(this.in);
    } catch (IOException e) {
      throw unreadable(e);
    }
    columns = form.schema(exchange).length();
  }

  @Override
  public boolean hasNext() {
    try {
      for (int from = 0; next == null && (from = in.read()) >= 0; ) {
        int length = in.readInt();
        number++;
        if (from == exchange && !isSkipped()) {
          byte[] bytes = new byte[length];
          in.readFully(bytes);
          next = new UnsafeRow(columns);
          next.pointTo(bytes, length);
        } else {
          in.skipNBytes(length);
        }
      }
      return next != null;
    } catch (IOException e) {
      throw unreadable(e);
    }
  }

  @Override
  public InternalRow next() {
    if (!hasNext()) {
      throw new NoSuchElementException("no more parked rows");
    }
    UnsafeRow row = next;
    next = null;
    return row;
  }

  private boolean isSkipped() {
    while (range < skipped.length && skipped[range + 1] <= number) {
      range += 2;
    }
    return range < skipped.length && skipped[range] <= number;
  }

  /** The number of the row that was returned last, over all exchanges. */
  public long number() {
    return number;
  }

  private void close() {
    try {
      in.close();
    } catch (IOException e) {
      throw unreadable(e);
    }
  }

  private static HoldfastException unreadable(IOException e) {
    return new HoldfastException("Cannot read parked rows", e);
  }
}
