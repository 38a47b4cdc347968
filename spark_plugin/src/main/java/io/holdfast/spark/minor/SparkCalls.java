package io.holdfast.spark.minor;

import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
// until-4.0: import org.apache.spark.sql.errors.QueryExecutionErrors$;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors$;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreInstanceMetric; // from-4.1
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.types.StructType;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/** Calls of Spark that 4.1 changed. Up to 4.0 Spark takes no reports of commits and snapshots. */
public final class SparkCalls {
  private SparkCalls() {}

  /** Reports a commit. Otherwise Spark fails a batch of {@code foreachBatch} after its commit. */
  public static void reportCommit(
      StateStoreConf conf, StateStoreId id, long version, Configuration hadoopConf) {
    if (conf.commitValidationEnabled()) { // from-4.1
      StateStore.reportCommitToCoordinator(version, id, hadoopConf); // from-4.1
    } // from-4.1
  }

  /** Tells Spark's coordinator about a version that is as good as a snapshot. */
  public static void reportSnapshot(StateStoreId id, UUID runId, long version) {
    StateStoreProviderId providerId = new StateStoreProviderId(id, runId);
    long now = System.currentTimeMillis();
    StateStoreProvider$.MODULE$ // from-4.1
        .coordinatorRef() // from-4.1
        .foreach(ref -> ref.snapshotUploaded(providerId, version, now)); // from-4.1
  }

  /** Returns true if {@link #reportSnapshot} is wanted. */
  public static boolean wantsSnapshots(StateStoreConf conf) {
    return conf.reportSnapshotUploadLag(); // from-4.1
    // until-4.0: return false;
  }

  public static void validateRow(
      UnsafeRow key,
      StructType keySchema,
      UnsafeRow value,
      StructType valueSchema,
      StateStoreId id,
      StateStoreConf conf) {
    StateStoreProvider$.MODULE$.validateStateRowFormat(
        key, keySchema, value, valueSchema, id, conf); // from-4.1
    // until-4.0: key, keySchema, value, valueSchema, conf);
  }

  /** The exception of Spark's own provider for a version that it cannot load. */
  public static Throwable cannotLoad(Exception cause) {
    return StateStoreErrors$.MODULE$.cannotLoadStore(cause); // from-4.1
    // until-4.0: return QueryExecutionErrors$.MODULE$.cannotLoadStore(cause);
  }

  /** The exception of Spark's own provider for a call on a store whose session is over. */
  public static RuntimeException sessionIsOver(long stamp) {
    return StateStoreErrors$.MODULE$.invalidStamp(stamp, -1); // from-4.1
    // until-4.0: String over = "The state store was committed, aborted or released before";
    // until-4.0: return new IllegalStateException(over + ", in session " + stamp);
  }

  public static StateStoreMetrics metrics(
      long keys, long memoryBytes, Map<StateStoreCustomMetric, Object> custom) {
    return new StateStoreMetrics(
        keys,
        memoryBytes,
        scala.collection.immutable.Map.from(CollectionConverters.asScala(custom)), // from-4.1
        Map$.MODULE$.<StateStoreInstanceMetric, Object>empty()); // from-4.1
    // until-4.0: scala.collection.immutable.Map.from(CollectionConverters.asScala(custom)));
  }
}
