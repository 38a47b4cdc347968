package io.holdfast.spark.isolation.driver;

import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListenerEvent;

/** Tasks that run on the thread of the listener, in the order of Spark's own events. */
record SparkEvents(SparkContext spark) {
  /** Runs after all events that Spark posted before. */
  record Posted(Runnable task) implements SparkListenerEvent {
    @Override
    public boolean logEvent() {
      return false;
    }
  }

  void post(Runnable task) {
    spark.listenerBus().post(new Posted(task));
  }

  void postInASecond(Runnable task) {
    after(1, () -> post(task));
  }

  /** Runs on another thread. */
  static void after(long seconds, Runnable task) {
    CompletableFuture.delayedExecutor(seconds, TimeUnit.SECONDS).execute(task);
  }

  void kill(long task) {
    spark.killTaskAttempt(task, true, "another attempt takes over its partition");
  }
}
