package io.holdfast.bench;

import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.checkpointing.CommitLog;
import org.apache.spark.sql.execution.streaming.checkpointing.CommitMetadataBase;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.immutable.Map;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One state store of the session's provider, from version to version. Methods that measure return
 * nanoseconds.
 */
final class OneStore implements AutoCloseable {
  static final String FAMILY = StateStore.DEFAULT_COL_FAMILY_NAME();

  private final SparkSession spark;
  private final StateStoreId id;
  private final StructType keys;
  private final StructType values;
  private final KeyStateEncoderSpec spec;
  private final CommitLog commits;

  private StateStoreProvider provider;
  private StateStore store;
  private Option<String> commitId = Option.empty();
  private long version;

  /**
   * @param checkpoint root folder, of this store alone
   */
  OneStore(
      SparkSession spark,
      String checkpoint,
      StructType keys,
      StructType values,
      KeyStateEncoderSpec spec) {
    this.spark = spark;
    this.keys = keys;
    this.values = values;
    this.spec = spec;
    id = new StateStoreId(checkpoint + "/state", 0, 0, StateStoreId.DEFAULT_STORE_NAME());
    commits = new CommitLog(spark, checkpoint + "/commits", false);
    provider = newProvider();
  }

  private StateStoreProvider newProvider() {
    Configuration hadoopConf = spark.sessionState().newHadoopConf();
    return StateStoreProvider.createAndInit(
        new StateStoreProviderId(id, UUID.randomUUID()),
        keys,
        values,
        spec,
        false,
        StateStoreConf.apply(spark.sessionState().conf()),
        hadoopConf,
        false,
        Option.empty());
  }

  /** The session that was begun last. */
  StateStore session() {
    return store;
  }

  long version() {
    return version;
  }

  /** Returns the id of the newest version's commit; null where the provider has none. */
  String commitId() {
    return commitId.isDefined() ? commitId.get() : null;
  }

  /** Goes on from a version that another process committed. */
  void stand(long version, String commitId) {
    this.version = version;
    this.commitId = Option.apply(commitId);
  }

  /** Opens the newest version for changes. */
  long begin() {
    long start = System.nanoTime();
    store = provider.getStore(version, commitId, false, false);
    return System.nanoTime() - start;
  }

  /** Commits what was changed since {@link #begin}. */
  long commit() {
    long start = System.nanoTime();
    version = store.commit();
    long took = System.nanoTime() - start;
    commitId = store.getStateStoreCheckpointInfo().stateStoreCkptId();
    return took;
  }

  /** Commits the batch of the last {@link #commit} as the driver does. */
  long publish() {
    Option<Map<Object, String[][]>> ids = Option.empty();
    int format = CommitLog.VERSION_1();
    if (commitId.isDefined()) {
      String[][] ofPartitions = {{commitId.get()}};
      java.util.Map<Object, String[][]> byOperator =
          java.util.Map.of(id.operatorId(), ofPartitions);
      ids = Option.apply(Map.from(CollectionConverters.asScala(byOperator)));
      format = CommitLog.VERSION_2();
    }
    CommitMetadataBase metadata =
        commits.createMetadata(0, ids, commits.createMetadata$default$3(), format);
    long start = System.nanoTime();
    if (!commits.add(version - 1, metadata)) {
      throw new IllegalStateException("batch " + (version - 1) + " was committed before");
    }
    return System.nanoTime() - start;
  }

  void abort() {
    store.abort();
  }

  /** Does the background maintenance of one minute. */
  long maintain() {
    long start = System.nanoTime();
    provider.doMaintenance();
    return System.nanoTime() - start;
  }

  /** Memory in bytes, as the provider reports it after a commit. */
  long memoryUsedBytes() {
    return store.metrics().memoryUsedBytes();
  }

  long numKeys() {
    return store.metrics().numKeys();
  }

  /** A metric of the provider's own; 0 where it has none of that name. */
  long metric(String name) {
    long[] found = {0};
    CollectionConverters.asJava(store.metrics().customMetrics())
        .forEach((metric, value) -> found[0] += metric.name().equals(name) ? (long) value : 0);
    return found[0];
  }

  /** Makes another provider in place of one that was closed; it knows nothing of the state yet. */
  void renew() {
    provider = newProvider();
  }

  @Override
  public void close() {
    provider.close();
  }

  static void require(String what, long expected, long found) {
    if (expected != found) {
      throw new IllegalStateException(
          what + ": expected " + expected + ", found " + found + ": the store answers wrongly");
    }
  }
}
