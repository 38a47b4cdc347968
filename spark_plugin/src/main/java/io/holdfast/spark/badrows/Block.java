package io.holdfast.spark.badrows;

import java.util.ArrayList;
import java.util.BitSet;
import java.util.List;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** Rows of a source in their order, some of which are left out. */
abstract class Block {
  final BitSet leftOut = new BitSet();

  /** The last row that the stage has read of the last slice. */
  final int[] last = {0};

  abstract int size();

  /** Valid until the next call. */
  abstract UnsafeRow row(int number);

  /** The rows of a range in the form of the source, without those that are left out. */
  abstract Iterator<?> slice(int from, int to);

  /** Rows in memory. */
  static final class OfRows extends Block {
    private final List<UnsafeRow> rows;

    OfRows(List<UnsafeRow> rows) {
      this.rows = rows;
    }

    @Override
    int size() {
      return rows.size();
    }

    @Override
    UnsafeRow row(int number) {
      return rows.get(number);
    }

    @Override
    Iterator<?> slice(int from, int to) {
      last[0] = from;
      return new AbstractIterator<UnsafeRow>() {
        private int next = leftOut.nextClearBit(from);

        @Override
        public boolean hasNext() {
          return next < to;
        }

        @Override
        public UnsafeRow next() {
          last[0] = next;
          next = leftOut.nextClearBit(next + 1);
          return rows.get(last[0]);
        }
      };
    }
  }

  /** A batch of columns, until the source makes the next one. */
  static final class OfColumns extends Block {
    private final ColumnarBatch batch;
    private final UnsafeProjection copier;

    OfColumns(ColumnarBatch batch, UnsafeProjection copier) {
      this.batch = batch;
      this.copier = copier;
    }

    @Override
    int size() {
      return batch.numRows();
    }

    @Override
    UnsafeRow row(int number) {
      return copier.apply(batch.getRow(number));
    }

    @Override
    Iterator<?> slice(int from, int to) {
      last[0] = from;
      List<ColumnarBatch> parts = new ArrayList<>();
      for (int begin = leftOut.nextClearBit(from); begin < to; ) {
        int cut = leftOut.nextSetBit(begin);
        int end = cut < 0 ? to : Math.min(cut, to);
        parts.add(ShiftedColumn.rows(batch, begin, end, last));
        begin = leftOut.nextClearBit(end);
      }
      return CollectionConverters.asScala(parts.iterator());
    }
  }
}
