package io.holdfast.spark.isolation;

import java.util.NoSuchElementException;
import java.util.function.Supplier;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.AbstractIterator;

/** The rows of a supplier that returns null behind the last one. */
final class NextRows extends AbstractIterator<InternalRow> {
  private final Supplier<? extends InternalRow> rows;
  private InternalRow next;

  NextRows(Supplier<? extends InternalRow> rows) {
    this.rows = rows;
    next = rows.get();
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
    InternalRow row = next;
    next = rows.get();
    return row;
  }
}
