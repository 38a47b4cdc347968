package io.holdfast.spark.store;

import org.apache.spark.sql.execution.streaming.state.KeyValueChecksum;
import org.apache.spark.sql.execution.streaming.state.KeyValueChecksumEncoder$;
import org.apache.spark.sql.execution.streaming.state.KeyValueIntegrityVerifier;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import scala.Option;

/**
 * Spark's row checksums ({@code spark.sql.streaming.stateStore.rowChecksum.enabled}): a checksum of
 * key and value before every value. Reads verify it at the configured rate.
 */
final class RowChecksums {
  private final Option<KeyValueIntegrityVerifier> verifier;

  private RowChecksums(Option<KeyValueIntegrityVerifier> verifier) {
    this.verifier = verifier;
  }

  /** Null if they are switched off. */
  static RowChecksums of(StateStoreId id, StateStoreConf conf) {
    if (!conf.rowChecksumEnabled()) {
      return null;
    }
    return new RowChecksums(
        KeyValueIntegrityVerifier.create(
            id.toString(), true, conf.rowChecksumReadVerificationRatio()));
  }

  byte[] seal(byte[] key, byte[] value) {
    int checksum = KeyValueChecksum.create(key, Option.apply(value));
    return KeyValueChecksumEncoder$.MODULE$.encodeSingleValueRowWithChecksum(value, checksum);
  }

  byte[] open(byte[] key, byte[] sealed) {
    return KeyValueChecksumEncoder$.MODULE$.decodeAndVerifySingleValueRowWithChecksum(
        verifier, key, sealed);
  }
}
