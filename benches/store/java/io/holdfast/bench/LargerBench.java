package io.holdfast.bench;

import java.util.LinkedHashSet;
import java.util.Set;
import java.util.function.LongSupplier;
import org.apache.commons.math3.distribution.ZipfDistribution;
import org.apache.commons.math3.random.RandomGenerator;
import org.apache.commons.math3.random.Well19937c;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/**
 * Batches on one state store that is larger than the memory it may take: its keys are counted, as
 * an aggregation does, or looked for and put where they are new, as a deduplication does. Methods
 * that measure return nanoseconds, and fail if the store answers wrongly.
 */
public final class LargerBench implements AutoCloseable {
  private static final String FAMILY = OneStore.FAMILY;

  /** Prime to all numbers of keys in use: frequent keys lie anywhere. */
  private static final long STRIDE = 611_953;

  private static final double ZIPF_EXPONENT = 0.99;

  /** One of so many rows of {@link #chooseMostlyNew} has a known key. */
  private static final int KNOWN_EVERY = 20;

  private final int keys;
  private final WideRows rows = new WideRows();
  private final OneStore one;

  private StateStore store;
  private long[] chosen = {};
  private long nextNew;
  private long counted;

  /**
   * @param checkpoint root folder, of this store alone
   * @param keys distinct keys of {@link #fill}
   */
  public LargerBench(SparkSession spark, String checkpoint, int keys) {
    this.keys = keys;
    nextNew = keys;
    one =
        new OneStore(
            spark,
            checkpoint,
            WideRows.KEY,
            WideRows.VALUE,
            new NoPrefixKeyStateEncoderSpec(WideRows.KEY));
  }

  /** Goes on from a version that another process committed, which had put all keys below one. */
  public void stand(long version, String commitId, long nextNew) {
    one.stand(version, commitId);
    this.nextNew = nextNew;
  }

  public long version() {
    return one.version();
  }

  public String commitId() {
    return one.commitId();
  }

  public long nextNew() {
    return nextNew;
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

  /** Does the background maintenance of one minute. */
  public long maintain() {
    return one.maintain();
  }

  /** Memory in bytes, as the provider reports it after a commit. */
  public long memoryUsedBytes() {
    return one.memoryUsedBytes();
  }

  /** A metric of the provider's own. */
  public long metric(String name) {
    return one.metric(name);
  }

  /** Puts the keys of these numbers with a count. */
  public void fill(int from, int to, long count) {
    for (int number = from; number < to; number++) {
      store.put(rows.key(number), rows.value(number, count), FAMILY);
    }
  }

  /** The keys of a batch: few are in most batches, most are in hardly any. */
  public int chooseZipf(int count, long seed) {
    RandomGenerator random = new Well19937c(seed);
    ZipfDistribution ranks = new ZipfDistribution(random, keys, ZIPF_EXPONENT);
    return choose(count, () -> (ranks.sample() - 1) * STRIDE % keys);
  }

  /** The keys of a batch, each as likely as any other. */
  public int chooseUniform(int count, long seed) {
    RandomGenerator random = new Well19937c(seed);
    return choose(count, () -> random.nextInt(keys));
  }

  /** The keys of a batch, 19 of 20 of them new. */
  public int chooseMostlyNew(int count, long seed) {
    RandomGenerator random = new Well19937c(seed);
    return choose(
        count, () -> random.nextInt(KNOWN_EVERY) == 0 ? random.nextInt(keys) : nextNew++);
  }

  /** Rows of one key are one by the time that an operator asks its store. */
  private int choose(int count, LongSupplier next) {
    Set<Long> distinct = new LinkedHashSet<>();
    for (int row = 0; row < count; row++) {
      distinct.add(next.getAsLong());
    }
    chosen = distinct.stream().mapToLong(Long::longValue).toArray();
    return chosen.length;
  }

  /** Adds one to the count of every chosen key. */
  public long count() {
    long start = System.nanoTime();
    for (long number : chosen) {
      UnsafeRow found = store.get(rows.key(number), FAMILY);
      long before = rows.count(number, found);
      counted += before;
      store.put(rows.key(number), rows.value(number, before + 1), FAMILY);
    }
    return System.nanoTime() - start;
  }

  /** Puts those of the chosen keys that are not there. */
  public long deduplicate() {
    long start = System.nanoTime();
    for (long number : chosen) {
      UnsafeRow found = store.get(rows.key(number), FAMILY);
      if (found == null) {
        store.put(rows.key(number), rows.value(number, 1), FAMILY);
      } else {
        counted += rows.count(number, found);
      }
    }
    return System.nanoTime() - start;
  }

  /** The sum of all counts that were found: the same for all providers. */
  public long counted() {
    return counted;
  }

  /** Fails if the newest version has another number of keys than were put. */
  public void requireAll() {
    OneStore.require("number of keys", nextNew, one.numKeys());
  }

  @Override
  public void close() {
    one.close();
  }
}
