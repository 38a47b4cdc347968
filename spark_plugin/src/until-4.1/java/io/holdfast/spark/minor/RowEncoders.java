package io.holdfast.spark.minor;

import org.apache.spark.sql.execution.streaming.state.RocksDBDataEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateEncoder$;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.sql.types.StructType;

/** Spark's encoders of rows, as far as 4.2 changed them. */
public final class RowEncoders {
  private RowEncoders() {}

  /** Of one value; a list is encoded value by value. */
  public static RocksDBValueStateEncoder ofValue(RocksDBDataEncoder encoder, StructType schema) {
    return RocksDBStateEncoder$.MODULE$.getValueEncoder(encoder, schema, false);
  }

  /** No operator asks for scans by range up to 4.1. */
  public static boolean scansRanges(RocksDBKeyStateEncoder encoder) {
    return false;
  }
}
