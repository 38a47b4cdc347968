package io.holdfast.spark.store;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.Native;
import io.holdfast.spark.executor.CommitEntries;
import io.holdfast.spark.minor.SparkCalls;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RocksDBDataEncoder;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateEncoder$;
import org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateRowEncoderCacheKey;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** Spark's arguments at the start of a provider, shared by the stores that the provider opens. */
public final class StoreContext {
  private static final String UNSAFE_ROW = "unsaferow";

  final StateStoreId id;
  final StructType keySchema;
  final StructType valueSchema;

  public final boolean columns;

  public final StateStoreConf conf;
  public final Configuration hadoopConf;

  /** Null if they are switched off. */
  final RowChecksums checksums;

  /** Spark described these column families so far, the default family included. */
  public final Map<String, FamilySpec> families = new ConcurrentHashMap<>();

  final Option<StateSchemaProvider> schemas;
  private final Supplier<CommitEntries> commitEntries;
  private boolean validated;

  /** For errors about a session that is used after its end. */
  final AtomicLong stamps = new AtomicLong();

  public StoreContext(
      StateStoreId id,
      StructType keySchema,
      StructType valueSchema,
      boolean columns,
      StateStoreConf conf,
      Configuration hadoopConf,
      Option<StateSchemaProvider> schemas,
      Supplier<CommitEntries> commitEntries) {
    this.id = id;
    this.keySchema = keySchema;
    this.valueSchema = valueSchema;
    this.columns = columns;
    this.conf = conf;
    this.hadoopConf = hadoopConf;
    this.schemas = schemas;
    this.commitEntries = commitEntries;
    checksums = RowChecksums.of(id, conf);
  }

  public UUID runId() {
    return UUID.fromString(hadoopConf.get(HoldfastConf.RUN_ID_KEY));
  }

  /** Ids of all stores of this partition in the commit log's entry of a version. */
  public String[] idsOfVersion(long version) {
    return idsOfVersion(version, id.partitionId());
  }

  private String[] idsOfVersion(long version, int partition) {
    return commitEntries
        .get()
        .idsOfVersion(id.checkpointRootLocation(), id.operatorId(), partition, version, hadoopConf);
  }

  /**
   * Returns true if the operator has fewer partitions in a version. The state readers of Spark 4.0
   * read every partition that has a folder.
   */
  public boolean lacksPartition(long version) {
    return idsOfVersion(version).length == 0 && idsOfVersion(version, 0).length > 0;
  }

  /** Remembers a column family; a known family remains unchanged. */
  public void register(
      String name,
      StructType value,
      KeyStateEncoderSpec keySpec,
      boolean severalValues,
      boolean internal) {
    families.computeIfAbsent(name, key -> describe(name, value, keySpec, severalValues, internal));
  }

  private FamilySpec describe(
      String name,
      StructType valueSchema,
      KeyStateEncoderSpec keySpec,
      boolean severalValues,
      boolean internal) {
    boolean plainKey = keySpec instanceof NoPrefixKeyStateEncoderSpec;
    boolean unsafeRows = conf.stateStoreEncodingFormat().equalsIgnoreCase(UNSAFE_ROW);
    RowForm key = new RowForm.Direct(keySpec.keySchema().length());
    RowForm value = new RowForm.Direct(valueSchema.length());
    if (!plainKey || !unsafeRows) {
      RocksDBDataEncoder encoder = dataEncoder(name, valueSchema, keySpec);
      key =
          new RowForm.EncodedKey(
              RocksDBStateEncoder$.MODULE$.getKeyEncoder(encoder, keySpec, columns));
      if (!unsafeRows) {
        // Lists are kept value by value, so every value is encoded separately.
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
  private RocksDBDataEncoder dataEncoder(
      String name, StructType valueSchema, KeyStateEncoderSpec keySpec) {
    StateRowEncoderCacheKey cacheKey =
        new StateRowEncoderCacheKey(
            runId().toString(), id.operatorId(), id.partitionId(), id.storeName(), name);
    return RocksDBStateStoreProvider.getDataEncoder(
        conf.stateStoreEncodingFormat(),
        cacheKey,
        keySpec,
        valueSchema,
        schemas,
        Option.apply(name));
  }

  /** Checks only the first row that is read, if Spark is configured to. */
  void validate(UnsafeRow key, UnsafeRow value) {
    if (!validated && !columns) {
      SparkCalls.validateRow(key, keySchema, value, valueSchema, id, conf);
      validated = true;
    }
  }
}
