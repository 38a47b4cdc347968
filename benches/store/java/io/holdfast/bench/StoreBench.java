package io.holdfast.bench;

import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.checkpointing.CommitLog;
import org.apache.spark.sql.execution.streaming.checkpointing.CommitMetadataBase;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import scala.Option;
import scala.collection.immutable.Map;
import scala.jdk.javaapi.CollectionConverters;

/**
 * One state store of the session's provider, driven by one thread. Methods that measure return
 * nanoseconds, and fail if the store answers wrongly.
 */
public final class StoreBench implements AutoCloseable {
  private static final String FAMILY = StateStore.DEFAULT_COL_FAMILY_NAME();

  /** Prime to all numbers of keys in use: visits keys in an order no cache foresees. */
  private static final long STRIDE = 611_953;

  /** Loops run in chunks, so that their compiled form is entered early and often. */
  private static final long CHUNK = 10_000;

  private final SparkSession spark;
  private final StateStoreId id;
  private final long keys;
  private final long groupSize;
  private final Rows rows;
  private final CommitLog commits;

  private StateStoreProvider provider;
  private StateStore store;
  private Option<String> commitId = Option.empty();
  private long version;

  /**
   * @param checkpoint root folder, of this store alone
   * @param keys distinct keys the store is filled with
   * @param groupSize keys that share a prefix; 1 for a store that is not scanned by prefix
   */
  public StoreBench(SparkSession spark, String checkpoint, long keys, long groupSize) {
    this.spark = spark;
    this.keys = keys;
    this.groupSize = groupSize;
    id = new StateStoreId(checkpoint + "/state", 0, 0, StateStoreId.DEFAULT_STORE_NAME());
    rows = new Rows(groupSize);
    commits = new CommitLog(spark, checkpoint + "/commits", false);
    provider = newProvider();
  }

  private StateStoreProvider newProvider() {
    KeyStateEncoderSpec spec =
        groupSize == 1
            ? new NoPrefixKeyStateEncoderSpec(Rows.KEY)
            : new PrefixKeyScanStateEncoderSpec(Rows.KEY, 1);
    Configuration hadoopConf = spark.sessionState().newHadoopConf();
    return StateStoreProvider.createAndInit(
        new StateStoreProviderId(id, UUID.randomUUID()),
        Rows.KEY,
        Rows.VALUE,
        spec,
        false,
        StateStoreConf.apply(spark.sessionState().conf()),
        hadoopConf,
        false,
        Option.empty());
  }

  /** Opens the newest version for changes. */
  public long begin() {
    long start = System.nanoTime();
    store = provider.getStore(version, commitId, false, false);
    return System.nanoTime() - start;
  }

  /** Commits what was changed since {@link #begin}. */
  public long commit() {
    long start = System.nanoTime();
    version = store.commit();
    long took = System.nanoTime() - start;
    commitId = store.getStateStoreCheckpointInfo().stateStoreCkptId();
    return took;
  }

  /** Commits the batch of the last {@link #commit} as the driver does. */
  public long publish() {
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

  public void abort() {
    store.abort();
  }

  /** What background maintenance does once a minute. */
  public long maintain() {
    long start = System.nanoTime();
    provider.doMaintenance();
    return System.nanoTime() - start;
  }

  /** Memory in bytes, as the provider reports it after a commit. */
  public long memoryUsedBytes() {
    return store.metrics().memoryUsedBytes();
  }

  public long numKeys() {
    return store.metrics().numKeys();
  }

  /** Puts {@code count} keys; {@code salt} makes values differ from those of another call. */
  public long put(long count, long salt) {
    long start = System.nanoTime();
    for (long from = 0; from < count; from += CHUNK) {
      putChunk(from, Math.min(from + CHUNK, count), salt);
    }
    return System.nanoTime() - start;
  }

  private void putChunk(long from, long to, long salt) {
    for (long i = from; i < to; i++) {
      long number = scattered(i + salt);
      store.put(rows.key(number), rows.value(number + salt), FAMILY);
    }
  }

  /** Gets {@code count} keys that are there, with the values of {@code put(keys, salt)}. */
  public long getHits(long count, long salt) {
    long sum = 0;
    long wanted = 0;
    long start = System.nanoTime();
    for (long from = 0; from < count; from += CHUNK) {
      sum += getChunk(from, Math.min(from + CHUNK, count));
    }
    long took = System.nanoTime() - start;
    for (long i = 0; i < count; i++) {
      wanted += Rows.expected(scattered(i) + salt);
    }
    require("sum of values", wanted, sum);
    return took;
  }

  private long getChunk(long from, long to) {
    long sum = 0;
    for (long i = from; i < to; i++) {
      sum += Rows.read(store.get(rows.key(scattered(i)), FAMILY));
    }
    return sum;
  }

  /** Gets {@code count} keys that are not there. */
  public long getMisses(long count) {
    long found = 0;
    long start = System.nanoTime();
    for (long from = 0; from < count; from += CHUNK) {
      found += missChunk(from, Math.min(from + CHUNK, count));
    }
    long took = System.nanoTime() - start;
    require("keys found", 0, found);
    return took;
  }

  private long missChunk(long from, long to) {
    long found = 0;
    for (long i = from; i < to; i++) {
      UnsafeRow value = store.get(rows.key(keys + scattered(i)), FAMILY);
      found += value == null ? 0 : 1;
    }
    return found;
  }

  /** Removes {@code count} keys. */
  public long remove(long count) {
    long start = System.nanoTime();
    for (long from = 0; from < count; from += CHUNK) {
      removeChunk(from, Math.min(from + CHUNK, count));
    }
    return System.nanoTime() - start;
  }

  private void removeChunk(long from, long to) {
    for (long i = from; i < to; i++) {
      store.remove(rows.key(scattered(i)), FAMILY);
    }
  }

  /** Reads key and value of every entry, with the values of {@code put(keys, salt)}. */
  public long scan(long salt) {
    long start = System.nanoTime();
    StateStoreIterator<UnsafeRowPair> entries = store.iterator(FAMILY);
    long sum = drain(entries);
    entries.close();
    long took = System.nanoTime() - start;
    long wanted = 0;
    for (long number = 0; number < keys; number++) {
      wanted += number + Rows.expected(number + salt);
    }
    require("sum of keys and values", wanted, sum);
    return took;
  }

  /** Scans {@code count} prefixes, with the values of {@code put(keys, salt)}. */
  public long scanPrefixes(long count, long salt) {
    long groups = keys / groupSize;
    long sum = 0;
    long start = System.nanoTime();
    for (long i = 0; i < count; i++) {
      StateStoreIterator<UnsafeRowPair> entries =
          store.prefixScan(rows.prefix(i * STRIDE % groups), FAMILY);
      sum += drain(entries);
      entries.close();
    }
    long took = System.nanoTime() - start;
    long wanted = 0;
    for (long i = 0; i < count; i++) {
      long first = i * STRIDE % groups * groupSize;
      for (long number = first; number < first + groupSize; number++) {
        wanted += number + Rows.expected(number + salt);
      }
    }
    require("sum of keys and values", wanted, sum);
    return took;
  }

  private static long drain(StateStoreIterator<UnsafeRowPair> entries) {
    long sum = 0;
    while (entries.hasNext()) {
      UnsafeRowPair entry = entries.next();
      sum += entry.key().getLong(1) + Rows.read(entry.value());
    }
    return sum;
  }

  /** Replaces the provider by a fresh one, up to the answer to its first get. */
  public long restore() {
    provider.close();
    long start = System.nanoTime();
    provider = newProvider();
    store = provider.getStore(version, commitId, false, false);
    UnsafeRow value = store.get(rows.key(0), FAMILY);
    long took = System.nanoTime() - start;
    require("first key found", 1, value == null ? 0 : 1);
    return took;
  }

  /** Heap in use after collections, in bytes: the least of several looks. */
  public static long heapBytes() {
    Runtime runtime = Runtime.getRuntime();
    long least = Long.MAX_VALUE;
    for (int look = 0; look < 4; look++) {
      System.gc();
      least = Math.min(least, runtime.totalMemory() - runtime.freeMemory());
    }
    return least;
  }

  @Override
  public void close() {
    provider.close();
  }

  private long scattered(long i) {
    return i * STRIDE % keys;
  }

  private static void require(String what, long expected, long found) {
    if (expected != found) {
      throw new IllegalStateException(
          what + ": expected " + expected + ", found " + found + ": the store answers wrongly");
    }
  }
}
