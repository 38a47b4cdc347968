package io.holdfast.spark.minor;

import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.errors.QueryExecutionErrors$;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreCustomMetric;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreMetrics;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/** Calls of Spark that 4.1 changed. Up to 4.0 it takes no report of commits and snapshots. */
public final class SparkCalls {
  private SparkCalls() {}

  public static void reportCommit(
      StateStoreConf conf, StateStoreId id, long version, Configuration hadoopConf) {}

  public static void reportSnapshot(StateStoreId id, UUID runId, long version) {}

  /** Whether {@link #reportSnapshot} is wanted. */
  public static boolean wantsSnapshots(StateStoreConf conf) {
    return false;
  }

  public static void validateRow(
      UnsafeRow key,
      StructType keySchema,
      UnsafeRow value,
      StructType valueSchema,
      StateStoreId id,
      StateStoreConf conf) {
    StateStoreProvider$.MODULE$.validateStateRowFormat(key, keySchema, value, valueSchema, conf);
  }

  /** What Spark's own provider throws for a version that it cannot load. */
  public static Throwable cannotLoad(Exception cause) {
    return QueryExecutionErrors$.MODULE$.cannotLoadStore(cause);
  }

  /** What Spark's own provider throws for a call on a store whose session is over. */
  public static RuntimeException sessionIsOver(long stamp) {
    return new IllegalStateException(
        "The state store was committed, aborted or released before, in session " + stamp);
  }

  public static StateStoreMetrics metrics(
      long keys, long memoryBytes, Map<StateStoreCustomMetric, Object> custom) {
    return new StateStoreMetrics(
        keys,
        memoryBytes,
        scala.collection.immutable.Map.from(CollectionConverters.asScala(custom)));
  }
}
