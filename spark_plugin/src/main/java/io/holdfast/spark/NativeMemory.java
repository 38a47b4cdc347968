package io.holdfast.spark;

import java.util.concurrent.atomic.AtomicLong;

/** Native memory of all state stores of one executor. It is outside the JVM's heap. */
final class NativeMemory {
  private final AtomicLong used = new AtomicLong();

  /** What one store has of it. */
  final class Share implements AutoCloseable {
    private final long limit;
    private final String store;
    private long bytes;

    /**
     * @param limit bound on the memory of all stores together, 0 for none
     * @param store for messages
     */
    Share(long limit, String store) {
      this.limit = limit;
      this.store = store;
    }

    /** Tells how large the store is now. */
    synchronized void resize(long now) {
      used.addAndGet(now - bytes);
      bytes = now;
    }

    /** Fails the task when all stores together have grown beyond the bound. */
    void requireWithinLimit() {
      long all = used.get();
      if (limit > 0 && all > limit) {
        throw new HoldfastException(
            "The state stores of this executor hold "
                + all
                + " bytes of native memory, more than "
                + HoldfastConf.Setting.MAX_MEMORY_BYTES.key
                + "="
                + limit
                + " (noticed at "
                + store
                + "). Nothing of this task was committed. Use more executors or partitions, or raise"
                + " the setting together with spark.executor.memoryOverhead.");
      }
    }

    @Override
    public void close() {
      resize(0);
    }
  }

  Share share(long limit, String store) {
    return new Share(limit, store);
  }
}
