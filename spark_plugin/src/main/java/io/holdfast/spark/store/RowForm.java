package io.holdfast.spark.store;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.unsafe.Platform;

/** How rows of one kind become bytes in a state store, and rows again. */
sealed interface RowForm {
  Bytes encode(UnsafeRow row);

  default boolean scansPrefixes() {
    return false;
  }

  default boolean scansRanges() {
    return false;
  }

  /** The bytes that every key with this prefix begins with. */
  default Bytes encodePrefix(UnsafeRow prefix) {
    throw new UnsupportedOperationException("Keys of this column family have no prefix to scan by");
  }

  /** Returns a row, perhaps {@code reuse}, on a range of bytes that nothing overwrites. */
  UnsafeRow decode(byte[] bytes, int at, int length, UnsafeRow reuse);

  /** For {@link #decode} to reuse; null if it makes its own row. */
  default UnsafeRow newRow() {
    return null;
  }

  /** A row of its own from all of {@code bytes}. */
  default UnsafeRow decode(byte[] bytes) {
    return decode(bytes, 0, bytes.length, newRow());
  }

  /** The bytes of Spark's rows, unchanged. */
  record Direct(int fields) implements RowForm {
    @Override
    public Bytes encode(UnsafeRow row) {
      return Bytes.of(row);
    }

    @Override
    public UnsafeRow decode(byte[] bytes, int at, int length, UnsafeRow reuse) {
      reuse.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + (long) at, length);
      return reuse;
    }

    @Override
    public UnsafeRow newRow() {
      return new UnsafeRow(fields);
    }
  }

  /** Keys in the order-preserving, or Avro, form of Spark's own encoders. */
  record EncodedKey(RocksDBKeyStateEncoder encoder) implements RowForm {
    @Override
    public Bytes encode(UnsafeRow row) {
      return Bytes.of(encoder.encodeKey(row));
    }

    @Override
    public boolean scansPrefixes() {
      return encoder.supportPrefixKeyScan();
    }

    @Override
    public boolean scansRanges() {
      return encoder.supportsRangeScan(); // from-4.2
      // Older operators do not ask for range scans.
      // until-4.1: return false;
    }

    @Override
    public Bytes encodePrefix(UnsafeRow prefix) {
      return Bytes.of(encoder.encodePrefixKey(prefix));
    }

    @Override
    public UnsafeRow decode(byte[] bytes, int at, int length, UnsafeRow reuse) {
      return encoder.decodeKey(Bytes.slice(bytes, at, length));
    }
  }

  /** Values in the form of Spark's own encoders, which evolve with their schema. */
  record EncodedValue(RocksDBValueStateEncoder encoder) implements RowForm {
    @Override
    public Bytes encode(UnsafeRow row) {
      return Bytes.of(encoder.encodeValue(row));
    }

    @Override
    public UnsafeRow decode(byte[] bytes, int at, int length, UnsafeRow reuse) {
      return encoder.decodeValue(Bytes.slice(bytes, at, length));
    }
  }
}
