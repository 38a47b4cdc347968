package io.holdfast.spark.minor;

import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors$;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreInstanceMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** Calls of Spark that 4.1 changed. */
public final class SparkCalls {
  private SparkCalls() {}

  /** Without it, Spark fails a batch of {@code foreachBatch} after its commit. */
  public static void reportCommit(
      StateStoreConf conf, StateStoreId id, long version, Configuration hadoopConf) {
    if (conf.commitValidationEnabled()) {
      StateStore.reportCommitToCoordinator(version, id, hadoopConf);
    }
  }

  /** Tells Spark's coordinator of a version that is as good as a snapshot. */
  public static void reportSnapshot(StateStoreId id, UUID runId, long version) {
    StateStoreProviderId providerId = new StateStoreProviderId(id, runId);
    StateStoreProvider$.MODULE$
        .coordinatorRef()
        .foreach(ref -> ref.snapshotUploaded(providerId, version, System.currentTimeMillis()));
  }

  /** Whether {@link #reportSnapshot} is wanted. */
  public static boolean wantsSnapshots(StateStoreConf conf) {
    return conf.reportSnapshotUploadLag();
  }

  public static void validateRow(
      UnsafeRow key,
      StructType keySchema,
      UnsafeRow value,
      StructType valueSchema,
      StateStoreId id,
      StateStoreConf conf) {
    StateStoreProvider$.MODULE$.validateStateRowFormat(
        key, keySchema, value, valueSchema, id, conf);
  }

  /** What Spark's own provider throws for a version that it cannot load. */
  public static Throwable cannotLoad(Exception cause) {
    return StateStoreErrors$.MODULE$.cannotLoadStore(cause);
  }

  /** What Spark's own provider throws for a call on a store whose session is over. */
  public static RuntimeException sessionIsOver(long stamp) {
    return StateStoreErrors$.MODULE$.invalidStamp(stamp, -1);
  }

  public static StateStoreMetrics metrics(
      long keys, long memoryBytes, Map<StateStoreCustomMetric, Object> custom) {
    return new StateStoreMetrics(
        keys,
        memoryBytes,
        scala.collection.immutable.Map.from(CollectionConverters.asScala(custom)),
        Map$.MODULE$.<StateStoreInstanceMetric, Object>empty());
  }
}
