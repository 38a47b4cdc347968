package io.holdfast.spark.store;

import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;

/** Spark's row checksums, which do not exist before 4.2. */
final class RowChecksums {
  private RowChecksums() {}

  /** Null, as if they were switched off. */
  static RowChecksums of(StateStoreId id, StateStoreConf conf) {
    return null;
  }

  byte[] seal(byte[] key, byte[] value) {
    return value;
  }

  byte[] open(byte[] key, byte[] sealed) {
    return sealed;
  }
}
