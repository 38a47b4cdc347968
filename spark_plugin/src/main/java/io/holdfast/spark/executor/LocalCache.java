package io.holdfast.spark.executor;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import org.apache.spark.SparkEnv;
import org.apache.spark.util.Utils;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Pages of remote files on the executor's local disk, in Spark's own folder for such files. */
final class LocalCache {
  private static final Logger LOG = LoggerFactory.getLogger(LocalCache.class);

  private volatile long bytes;

  /** Bound of the cache that begins when state leaves memory; 0 for none. */
  private volatile long awaited;

  record Totals(long bytes, long hits, long misses) {}

  /**
   * Bounds the cache. The largest bound of the executor's queries applies: a query without a cache
   * must not take the cache of another. Without a disk to write to there is no cache.
   *
   * @param atOnce else the cache begins when state leaves memory: until then nothing is read twice
   */
  synchronized void want(long wanted, boolean atOnce) {
    if (atOnce) {
      keep(wanted);
    } else {
      awaited = Math.max(awaited, wanted);
    }
  }

  /** Begins the cache if state has left memory. Says once if its disk has failed. */
  void look() {
    if (awaited > bytes && Native.wasShortOfMemory()) {
      keep(awaited);
    }
    String failure = bytes > 0 ? Native.takeCacheFailure() : null;
    if (failure != null) {
      LOG.warn(
          "The local cache is off, and its disk space given back: {}. What is not in memory is read"
              + " from the checkpoint from now on. Give spark.local.dir more space, or set"
              + " local_cache_bytes to less, and start the executor again",
          failure);
    }
  }

  private synchronized void keep(long wanted) {
    if (wanted <= bytes) {
      return;
    }
    bytes = wanted;
    try {
      // The file has no name, so a killed executor leaves nothing and no folder is needed.
      Native.keepLocally(Utils.getLocalDir(SparkEnv.get().conf()), wanted);
    } catch (HoldfastException e) {
      LOG.warn("State is read without a local cache: every read goes to the checkpoint", e);
    }
  }

  /**
   * Frees the disk. The native library outlives the executor if another session begins in this JVM,
   * and the settings of that session decide about its cache.
   */
  synchronized void stop() {
    if (bytes > 0) {
      Native.keepLocally("", 0);
    }
    bytes = 0;
    awaited = 0;
  }

  Totals totals() {
    long[] found = Native.localCache();
    return new Totals(found[0], found[1], found[2]);
  }
}
