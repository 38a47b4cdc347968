package io.holdfast.spark.store;

import io.holdfast.spark.minor.RowEncoders;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.RocksDBKeyStateEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBValueStateEncoder;
import org.apache.spark.unsafe.Platform;

/** How rows of one kind become bytes in a state store, and rows again. */
abstract class RowForm {
  abstract Bytes encode(UnsafeRow row);

  boolean scansPrefixes() {
    return false;
  }

  boolean scansRanges() {
    return false;
  }

  /** The bytes that every key with this prefix begins with. */
  Bytes encodePrefix(UnsafeRow prefix) {
    throw new UnsupportedOperationException("Keys of this column family have no prefix to scan by");
  }

  /**
   * The row in a range of {@code bytes}, which are not written to again.
   *
   * @param reuse a row that may be pointed at the bytes and returned
   */
  abstract UnsafeRow decode(byte[] bytes, int at, int length, UnsafeRow reuse);

  /** A row for {@link #decode} to reuse. */
  abstract UnsafeRow newRow();

  /** The bytes of Spark's rows as they are. */
  static final class Direct extends RowForm {
    private final int fields;

    Direct(int fields) {
      this.fields = fields;
    }

    @Override
    Bytes encode(UnsafeRow row) {
      return Bytes.of(row);
    }

    @Override
    UnsafeRow decode(byte[] bytes, int at, int length, UnsafeRow reuse) {
      reuse.pointTo(bytes, Platform.BYTE_ARRAY_OFFSET + (long) at, length);
      return reuse;
    }

    @Override
    UnsafeRow newRow() {
      return new UnsafeRow(fields);
    }
  }

  /** Keys in the order-preserving, or Avro, form of Spark's own encoders. */
  static final class EncodedKey extends RowForm {
    private final RocksDBKeyStateEncoder encoder;

    EncodedKey(RocksDBKeyStateEncoder encoder) {
      this.encoder = encoder;
    }

    @Override
    Bytes encode(UnsafeRow row) {
      return Bytes.of(encoder.encodeKey(row));
    }

    @Override
    boolean scansPrefixes() {
      return encoder.supportPrefixKeyScan();
    }

    @Override
    boolean scansRanges() {
      return RowEncoders.scansRanges(encoder);
    }

    @Override
    Bytes encodePrefix(UnsafeRow prefix) {
      return Bytes.of(encoder.encodePrefixKey(prefix));
    }

    @Override
    UnsafeRow decode(byte[] bytes, int at, int length, UnsafeRow reuse) {
      return encoder.decodeKey(Bytes.slice(bytes, at, length));
    }

    @Override
    UnsafeRow newRow() {
      return null;
    }
  }

  /** Values in the form of Spark's own encoders, which evolve with their schema. */
  static final class EncodedValue extends RowForm {
    private final RocksDBValueStateEncoder encoder;

    EncodedValue(RocksDBValueStateEncoder encoder) {
      this.encoder = encoder;
    }

    @Override
    Bytes encode(UnsafeRow row) {
      return Bytes.of(encoder.encodeValue(row));
    }

    @Override
    UnsafeRow decode(byte[] bytes, int at, int length, UnsafeRow reuse) {
      return encoder.decodeValue(Bytes.slice(bytes, at, length));
    }

    @Override
    UnsafeRow newRow() {
      return null;
    }
  }
}
