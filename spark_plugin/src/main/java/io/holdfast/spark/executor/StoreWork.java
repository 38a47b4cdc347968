package io.holdfast.spark.executor;

import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import java.util.function.LongSupplier;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Work on stores outside tasks, one store after the other on one thread. */
final class StoreWork {
  private static final Logger LOG = LoggerFactory.getLogger(StoreWork.class);

  private static final long IDLE_S = 10;

  /** Pause before the hydrator tries a store again whose task hydrates it by itself. */
  private static final long PAUSE_MS = 50;
  private final Set<Object> known = ConcurrentHashMap.newKeySet(); // waiting or at work

  private final ScheduledThreadPoolExecutor thread;

  StoreWork(String name) {
    thread =
        new ScheduledThreadPoolExecutor(
            1, DaemonThreads.named(name), new ThreadPoolExecutor.DiscardPolicy());
    thread.setKeepAliveTime(IDLE_S, TimeUnit.SECONDS);
    thread.allowCoreThreadTimeOut(true);
    thread.setExecuteExistingDelayedTasksAfterShutdownPolicy(false);
  }

  /**
   * Brings state that a store left in runs when it was opened into memory. Tasks do not wait for
   * it: they read the keys that they need themselves.
   *
   * @param what the store, for the log
   */
  void hydrate(long store, Object what) {
    add(store, () -> hydrated(store, what) == Native.HYDRATE_LATER ? PAUSE_MS : 0);
  }

  private int hydrated(long store, Object what) {
    int next = Native.HYDRATED;
    try {
      do {
        next = Native.hydrate(store);
      } while (next == Native.MORE_TO_HYDRATE && !thread.isShutdown());
    } catch (IllegalStateException closed) {
      // Nothing needs the store any more.
    } catch (HoldfastException e) {
      // The task that needs the same bytes goes around damage, or fails and says so.
      LOG.warn("State of {} stays where it is until it is asked for", what, e);
    }
    return next;
  }

  /**
   * Merges a store that cannot wait for Spark's maintenance, which runs once a minute: memory is
   * short, or too many changelogs have gathered.
   */
  void merge(Object store, Runnable merge) {
    add(
        store,
        () -> {
          try {
            merge.run();
          } catch (RuntimeException e) {
            LOG.warn("A merge of the state store of {} failed; maintenance tries again", store, e);
          }
          return 0;
        });
  }

  /** Does nothing if the store has work. The work returns ms until it runs again; 0 if done. */
  private void add(Object store, LongSupplier work) {
    if (known.add(store)) {
      thread.execute(() -> run(store, work));
    }
  }

  private void run(Object store, LongSupplier work) {
    long pauseMs = 0;
    try {
      pauseMs = work.getAsLong();
    } finally {
      if (pauseMs == 0) {
        known.remove(store);
      }
    }
    if (pauseMs > 0) {
      thread.schedule(() -> run(store, work), pauseMs, TimeUnit.MILLISECONDS);
    }
  }

  /** Drops work that waits. Running work is not interrupted: others write to the same file. */
  void stop() {
    thread.shutdown();
  }
}
