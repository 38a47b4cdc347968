package io.holdfast.spark.executor;

import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ScheduledThreadPoolExecutor;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Brings what stores left in runs when they were opened into memory, store after store, on one thread:
 * the tasks have the other cores. Tasks do not wait for it, and read what they need themselves.
 */
final class Hydrator {
  private static final Logger LOG = LoggerFactory.getLogger(Hydrator.class);

  /** Stores are opened when a query starts, and seldom later. */
  private static final long IDLE_S = 10;

  /** Until a store is looked at again whose task does it by itself. */
  private static final long PAUSE_MS = 50;

  /** Stores that are waiting or at work. */
  private final Set<Long> known = ConcurrentHashMap.newKeySet();

  private final ScheduledThreadPoolExecutor thread =
      new ScheduledThreadPoolExecutor(
          1,
          DaemonThreads.named("holdfast-hydrator"),
          new ThreadPoolExecutor.DiscardPolicy());

  Hydrator() {
    thread.setKeepAliveTime(IDLE_S, TimeUnit.SECONDS);
    thread.allowCoreThreadTimeOut(true);
  }

  /**
   * Begins with a store; nothing happens if that was done already.
   *
   * @param what the store, for the log
   */
  void add(long store, Object what) {
    if (known.add(store)) {
      thread.execute(() -> hydrate(store, what));
    }
  }

  private void hydrate(long store, Object what) {
    int next = Native.HYDRATED;
    try {
      do {
        next = Native.hydrate(store);
      } while (next == Native.MORE_TO_HYDRATE && !Thread.interrupted());
    } catch (IllegalStateException closed) {
      // Nothing needs it any more.
    } catch (HoldfastException e) {
      // The task that needs the same bytes goes around damage, or fails and says so.
      LOG.warn("State of {} stays where it is until it is asked for", what, e);
    }
    if (next == Native.HYDRATE_LATER) {
      thread.schedule(() -> hydrate(store, what), PAUSE_MS, TimeUnit.MILLISECONDS);
    } else {
      known.remove(store);
    }
  }

  void stop() {
    thread.shutdownNow();
  }
}
