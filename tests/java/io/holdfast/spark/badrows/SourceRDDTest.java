package io.holdfast.spark.badrows;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.List;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.util.GenericArrayData;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.UserDefinedType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import org.apache.spark.unsafe.types.UTF8String;
import org.junit.jupiter.api.Test;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

final class SourceRDDTest {
  private static final UTF8String TEXT = UTF8String.fromString("text");

  /** A type of a user's own. */
  private static final class Celsius extends UserDefinedType<Long> {
    private static final long serialVersionUID = 1L;

    @Override
    public DataType sqlType() {
      return DataTypes.LongType;
    }

    @Override
    public Object serialize(Long value) {
      return value;
    }

    @Override
    public Long deserialize(Object value) {
      return (Long) value;
    }

    @Override
    public Class<Long> userClass() {
      return Long.class;
    }
  }

  @Test
  void columnsOfAllTypesHaveTheValuesOfTheirRow() {
    DataType collated = DataType.fromDDL("STRING COLLATE UNICODE_CI");
    StructType schema =
        new StructType()
            .add("number", DataTypes.IntegerType)
            .add("collated", collated)
            .add("nothing", DataTypes.NullType)
            .add("time", DataType.fromDDL("TIME(6)"))
            .add("own", new Celsius())
            .add("times", DataTypes.createArrayType(DataType.fromDDL("TIME(6)")));
    Object[] values = {7, TEXT, null, 11L, 21L, new GenericArrayData(new Object[] {5L, 6L})};
    List<InternalRow> rows =
        List.of(new GenericInternalRow(values), new GenericInternalRow(new Object[6]));
    Iterator<ColumnarBatch> batches =
        SourceRDD.byColumns(CollectionConverters.asScala(rows.iterator()), schema);
    ColumnarBatch first = batches.next();
    assertEquals(1, first.numRows());
    InternalRow row = first.getRow(0);
    assertEquals(7, row.getInt(0));
    assertEquals(TEXT, row.getUTF8String(1));
    assertTrue(row.isNullAt(2));
    assertEquals(11L, row.getLong(3));
    assertEquals(21L, row.getLong(4));
    assertEquals(6L, row.getArray(5).getLong(1));
    InternalRow empty = batches.next().getRow(0);
    for (int column = 0; column < schema.length(); column++) {
      assertTrue(empty.isNullAt(column));
    }
    assertFalse(batches.hasNext());
  }
}
