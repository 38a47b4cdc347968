package io.holdfast.spark.badrows;

import java.util.BitSet;
import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.Iterator;

/** Rows of a source in memory and in their order, some of which are left out. */
final class Block {
  private final List<UnsafeRow> rows;
  final BitSet leftOut = new BitSet();

  /** The last row that the stage has read of the last slice. */
  int last;

  Block(List<UnsafeRow> rows) {
    this.rows = rows;
  }

  int size() {
    return rows.size();
  }

  UnsafeRow row(int number) {
    return rows.get(number);
  }

  /** The rows of a range, without those that are left out. */
  Iterator<InternalRow> slice(int from, int to) {
    last = from;
    return Iterator.range(from, to)
        .filter(number -> !leftOut.get((int) number))
        .map(
            number -> {
              last = (int) number;
              return rows.get(last);
            });
  }
}
