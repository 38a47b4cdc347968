package io.holdfast.spark.store;

import io.holdfast.spark.Native;
import io.holdfast.spark.minor.RowEncoders;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RocksDBDataEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateEncoder$;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateRowEncoderCacheKey;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** One column family as Spark described it: its name and how its rows become bytes. */
public final class FamilySpec {
  private static final String UNSAFE_ROW = "unsaferow";

  final String name;
  final RowForm key;
  final RowForm value;

  /** {@link Native#ORDERED} and the like. */
  public final int options;

  private FamilySpec(String name, RowForm key, RowForm value, int options) {
    this.name = name;
    this.key = key;
    this.value = value;
    this.options = options;
  }

  boolean hasSeveralValues() {
    return (options & Native.SEVERAL_VALUES) != 0;
  }

  public static FamilySpec of(
      StoreContext context,
      String name,
      StructType valueSchema,
      KeyStateEncoderSpec keySpec,
      boolean severalValues,
      boolean internal,
      Option<StateSchemaProvider> schemas) {
    boolean plainKey = keySpec instanceof NoPrefixKeyStateEncoderSpec;
    boolean unsafeRows = context.conf.stateStoreEncodingFormat().equalsIgnoreCase(UNSAFE_ROW);
    RowForm key = new RowForm.Direct(keySpec.keySchema().length());
    RowForm value = new RowForm.Direct(valueSchema.length());
    if (!plainKey || !unsafeRows) {
      RocksDBDataEncoder encoder = dataEncoder(context, name, valueSchema, keySpec, schemas);
      key =
          new RowForm.EncodedKey(
              RocksDBStateEncoder$.MODULE$.getKeyEncoder(encoder, keySpec, context.columns));
      if (!unsafeRows) {
        // Lists are kept value by value, so every value is encoded on its own.
        value = new RowForm.EncodedValue(RowEncoders.ofValue(encoder, valueSchema));
      }
    }
    int options =
        (plainKey ? 0 : Native.ORDERED)
            | (severalValues ? Native.SEVERAL_VALUES : 0)
            | (internal ? Native.INTERNAL : 0);
    return new FamilySpec(name, key, value, options);
  }

  /** Spark keeps these encoders by run, operator, partition, store and family, because Avro's are costly. */
  private static RocksDBDataEncoder dataEncoder(
      StoreContext context,
      String name,
      StructType valueSchema,
      KeyStateEncoderSpec keySpec,
      Option<StateSchemaProvider> schemas) {
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
        schemas,
        Option.apply(name));
  }
}
