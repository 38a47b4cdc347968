package io.holdfast.spark.badrows;

import org.apache.spark.sql.types.Decimal;
import org.apache.spark.sql.vectorized.ColumnVector;
import org.apache.spark.sql.vectorized.ColumnarArray;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.sql.vectorized.ColumnarMap;
import org.apache.spark.unsafe.types.UTF8String;

/** The rows of a column from one on. It notes the last row that was read. */
final class ShiftedColumn extends ColumnVector {
  private final ColumnVector column;
  private final int first;
  private final int[] last;

  private ShiftedColumn(ColumnVector column, int first, int[] last) {
    super(column.dataType());
    this.column = column;
    this.first = first;
    this.last = last;
  }

  /** Rows of a batch. {@code last} receives the number of the last one that was read. */
  static ColumnarBatch rows(ColumnarBatch batch, int from, int to, int[] last) {
    ColumnVector[] columns = new ColumnVector[batch.numCols()];
    for (int i = 0; i < columns.length; i++) {
      columns[i] = new ShiftedColumn(batch.column(i), from, last);
    }
    return new ColumnarBatch(columns, to - from);
  }

  private int at(int row) {
    last[0] = Math.max(last[0], first + row);
    return first + row;
  }

  @Override
  public void close() {}

  @Override
  public boolean hasNull() {
    return column.hasNull();
  }

  @Override
  public int numNulls() {
    return column.numNulls();
  }

  @Override
  public boolean isNullAt(int row) {
    return column.isNullAt(at(row));
  }

  @Override
  public boolean getBoolean(int row) {
    return column.getBoolean(at(row));
  }

  @Override
  public byte getByte(int row) {
    return column.getByte(at(row));
  }

  @Override
  public short getShort(int row) {
    return column.getShort(at(row));
  }

  @Override
  public int getInt(int row) {
    return column.getInt(at(row));
  }

  @Override
  public long getLong(int row) {
    return column.getLong(at(row));
  }

  @Override
  public float getFloat(int row) {
    return column.getFloat(at(row));
  }

  @Override
  public double getDouble(int row) {
    return column.getDouble(at(row));
  }

  @Override
  public ColumnarArray getArray(int row) {
    return column.getArray(at(row));
  }

  @Override
  public ColumnarMap getMap(int row) {
    return column.getMap(at(row));
  }

  @Override
  public Decimal getDecimal(int row, int precision, int scale) {
    return column.getDecimal(at(row), precision, scale);
  }

  @Override
  public UTF8String getUTF8String(int row) {
    return column.getUTF8String(at(row));
  }

  @Override
  public byte[] getBinary(int row) {
    return column.getBinary(at(row));
  }

  /** A field of a struct has a row for each struct. */
  @Override
  public ColumnVector getChild(int field) {
    return new ShiftedColumn(column.getChild(field), first, last);
  }
}
