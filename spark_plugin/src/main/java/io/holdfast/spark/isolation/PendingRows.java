package io.holdfast.spark.isolation;

import io.holdfast.spark.HoldfastException;
import java.io.BufferedInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.util.TaskCompletionListener;

/** Reads the rows of one exchange that were parked in one batch, in the order of their numbers. */
final class PendingRows {
  final InputForm form;
  private final DataInputStream in;
  private final int exchange;
  private final int columns;

  /** Where ranges of numbers begin and end, ascending. */
  private final long[] skipped;

  private int range;
  private long number = -1;

  /**
   * @param in is closed when the task ends
   * @param skipped numbers of rows to leave out: where ranges begin and end, ascending
   */
  PendingRows(InputStream in, int exchange, long[] skipped, TaskContext task) {
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

  /** The next row; null at the end. */
  UnsafeRow next() {
    try {
      for (int from = in.read(); from >= 0; from = in.read()) {
        int length = in.readInt();
        number++;
        if (from == exchange && !isSkipped()) {
          byte[] bytes = new byte[length];
          in.readFully(bytes);
          UnsafeRow row = new UnsafeRow(columns);
          row.pointTo(bytes, length);
          return row;
        }
        in.skipNBytes(length);
      }
      return null;
    } catch (IOException e) {
      throw unreadable(e);
    }
  }

  private boolean isSkipped() {
    while (range < skipped.length && skipped[range + 1] <= number) {
      range += 2;
    }
    return range < skipped.length && skipped[range] <= number;
  }

  /** The number of the row that was returned last, over all exchanges. */
  long number() {
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
