package io.holdfast.spark.store;

import io.holdfast.spark.Native;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RocksDBDataEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateEncoder$;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateRowEncoderCacheKey;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/**
 * One column family as Spark described it.
 *
 * @param key how keys become bytes
 * @param value how values become bytes
 * @param options {@link Native#ORDERED} and the like
 */
public record FamilySpec(String name, RowForm key, RowForm value, int options) {
  private static final String UNSAFE_ROW = "unsaferow";

  boolean hasSeveralValues() {
    return (options & Native.SEVERAL_VALUES) != 0;
  }

  static FamilySpec of(
      StoreContext context,
      String name,
      StructType valueSchema,
      KeyStateEncoderSpec keySpec,
      boolean severalValues,
      boolean internal) {
    boolean plainKey = keySpec instanceof NoPrefixKeyStateEncoderSpec;
    boolean unsafeRows = context.conf.stateStoreEncodingFormat().equalsIgnoreCase(UNSAFE_ROW);
    RowForm key = new RowForm.Direct(keySpec.keySchema().length());
    RowForm value = new RowForm.Direct(valueSchema.length());
    if (!plainKey || !unsafeRows) {
      RocksDBDataEncoder encoder = dataEncoder(context, name, valueSchema, keySpec);
      key =
          new RowForm.EncodedKey(
              RocksDBStateEncoder$.MODULE$.getKeyEncoder(encoder, keySpec, context.columns));
      if (!unsafeRows) {
        // Lists are kept value by value, so every value is encoded on its own.
        value =
            new RowForm.EncodedValue(
                RocksDBStateEncoder$.MODULE$.getValueEncoder(
                    encoder, valueSchema, false, 0)); // from-4.2
        // until-4.1: encoder, valueSchema, false));
      }
    }
    int options =
        (plainKey ? 0 : Native.ORDERED)
            | (severalValues ? Native.SEVERAL_VALUES : 0)
            | (internal ? Native.INTERNAL : 0);
    return new FamilySpec(name, key, value, options);
  }

  /** Spark caches these encoders, because Avro's are costly. */
  private static RocksDBDataEncoder dataEncoder(
      StoreContext context, String name, StructType valueSchema, KeyStateEncoderSpec keySpec) {
    StateRowEncoderCacheKey cacheKey =
        new StateRowEncoderCacheKey(
            context.runId().toString(),
            context.id.operatorId(),
            context.id.partitionId(),
            context.id.storeName(),
            name);
    return RocksDBStateStoreProvider.getDataEncoder(
        context.conf.stateStoreEncodingFormat(),
        cacheKey,
        keySpec,
        valueSchema,
        context.schemas,
        Option.apply(name));
  }
}
