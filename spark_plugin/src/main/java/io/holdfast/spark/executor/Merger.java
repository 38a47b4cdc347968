package io.holdfast.spark.executor;

import io.holdfast.spark.DaemonThreads;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Merges of stores that cannot wait until Spark's maintenance comes, which is once a minute: memory is
 * short, or too many changelogs have gathered. One after the other on one thread, beside the tasks.
 */
final class Merger {
  private static final Logger LOG = LoggerFactory.getLogger(Merger.class);

  private static final long IDLE_S = 10;

  /** Stores that are waiting or at work. */
  private final Set<Object> known = ConcurrentHashMap.newKeySet();

  private final ThreadPoolExecutor thread =
      new ThreadPoolExecutor(
          1,
          1,
          IDLE_S,
          TimeUnit.SECONDS,
          new LinkedBlockingQueue<>(),
          DaemonThreads.named("holdfast-merger"),
          new ThreadPoolExecutor.DiscardPolicy());

  Merger() {
    thread.allowCoreThreadTimeOut(true);
  }

  /** Has a store be merged; nothing happens while it waits for that. */
  void add(Object store, Runnable merge) {
    if (known.add(store)) {
      thread.execute(
          () -> {
            try {
              merge.run();
            } catch (RuntimeException e) {
              LOG.warn("A merge of the state store of {} failed; maintenance tries again", store, e);
            } finally {
              known.remove(store);
            }
          });
    }
  }

  /** A merge that runs is not interrupted: others write to the same file. */
  void stop() {
    thread.getQueue().clear();
    thread.shutdown();
  }
}
