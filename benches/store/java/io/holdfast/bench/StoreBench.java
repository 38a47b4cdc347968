package io.holdfast.bench;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;

/**
 * One state store of the session's provider, driven by one thread. Methods that measure return
 * nanoseconds, and fail if the store answers wrongly.
 */
public final class StoreBench implements AutoCloseable {
  private static final String FAMILY = OneStore.FAMILY;

  /** Prime to all numbers of keys in use: visits keys in an order no cache foresees. */
  private static final long STRIDE = 611_953;

  /** Loops run in chunks, so that their compiled form is entered early and often. */
  private static final long CHUNK = 10_000;

  private final long keys;
  private final long groupSize;
  private final Rows rows;
  private final OneStore one;

  private StateStore store;

  /**
   * @param checkpoint root folder, of this store alone
   * @param keys distinct keys the store is filled with
   * @param groupSize keys that share a prefix; 1 for a store that is not scanned by prefix
   */
  public StoreBench(SparkSession spark, String checkpoint, long keys, long groupSize) {
    this.keys = keys;
    this.groupSize = groupSize;
    rows = new Rows(groupSize);
    KeyStateEncoderSpec spec =
        groupSize == 1
            ? new NoPrefixKeyStateEncoderSpec(Rows.KEY)
            : new PrefixKeyScanStateEncoderSpec(Rows.KEY, 1);
    one = new OneStore(spark, checkpoint, Rows.KEY, Rows.VALUE, spec);
  }

  /** Opens the newest version for changes. */
  public long begin() {
    long took = one.begin();
    store = one.session();
    return took;
  }

  /** Commits what was changed since {@link #begin}. */
  public long commit() {
    return one.commit();
  }

  /** Commits the batch of the last {@link #commit} as the driver does. */
  public long publish() {
    return one.publish();
  }

  public void abort() {
    one.abort();
  }

  /** Does the background maintenance of one minute. */
  public long maintain() {
    return one.maintain();
  }

  /** Memory in bytes, as the provider reports it after a commit. */
  public long memoryUsedBytes() {
    return one.memoryUsedBytes();
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
    OneStore.require("sum of values", wanted, sum);
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
    OneStore.require("keys found", 0, found);
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
    OneStore.require("sum of keys and values", wanted, sum);
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
    OneStore.require("sum of keys and values", wanted, sum);
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
    one.close();
    long start = System.nanoTime();
    one.renew();
    begin();
    UnsafeRow value = store.get(rows.key(0), FAMILY);
    long took = System.nanoTime() - start;
    OneStore.require("first key found", 1, value == null ? 0 : 1);
    return took;
  }

  /** Gets every key, whatever its value: what a batch that needs all of a restored store does. */
  public long getAll() {
    long found = 0;
    long start = System.nanoTime();
    for (long i = 0; i < keys; i++) {
      found += store.get(rows.key(scattered(i)), FAMILY) == null ? 0 : 1;
    }
    long took = System.nanoTime() - start;
    OneStore.require("keys found", keys, found);
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
    one.close();
  }

  private long scattered(long i) {
    return i * STRIDE % keys;
  }
}
