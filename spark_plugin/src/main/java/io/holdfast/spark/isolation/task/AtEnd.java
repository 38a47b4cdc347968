package io.holdfast.spark.isolation.task;

import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** Does a step after the rows, before the reader learns that these were all. */
public final class AtEnd extends AbstractIterator<InternalRow> {
  private final Iterator<InternalRow> rows;
  private final Runnable end;
  private boolean ended;

  public AtEnd(Iterator<InternalRow> rows, Runnable end) {
    this.rows = rows;
    this.end = end;
  }

  @Override
  public boolean hasNext() {
    boolean more = !ended && rows.hasNext();
    if (!more && !ended) {
      end.run();
      ended = true;
    }
    return more;
  }

  @Override
  public InternalRow next() {
    return rows.next();
  }
}
