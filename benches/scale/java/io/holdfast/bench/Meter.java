package io.holdfast.bench;

import java.lang.management.ManagementFactory;
import java.lang.management.ThreadMXBean;
import java.util.EnumMap;
import java.util.LinkedHashMap;
import java.util.Locale;
import java.util.Map;
import java.util.concurrent.Callable;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.atomic.AtomicLong;
import java.util.function.Supplier;

/**
 * Counts requests to the simulated store, and the time that the driver waits for them, on a virtual
 * clock. Nothing sleeps. It also knows the CPU time of a thread without the store's share.
 */
final class Meter {
  /** Requests of S3, and how long each takes. */
  enum Kind {
    PUT(30),
    GET(15),
    HEAD(15),
    LIST(80),
    DELETE(30),
    BULK_DELETE(80);
    final int ms;

    Kind(int ms) {
      this.ms = ms;
    }
  }

  /** Who asks. */
  enum Role {
    DRIVER,
    CLEAN_UP, // the driver, beside its batches
    EXECUTOR
  }

  private enum Lane {
    /** One request after the other: the query's thread, and answers to executors. */
    PATH,
    /** The driver's, but no batch waits. */
    ASIDE
  }

  /** Hadoop makes file systems by reflection, and all share one store. */
  static final Meter ONLY = new Meter();

  private static final String CLEAN_UP_THREAD = "holdfast-reclaimer";
  private static final ThreadMXBean THREADS = ManagementFactory.getThreadMXBean();

  private final Map<Role, Map<Kind, Long>> counts = new EnumMap<>(Role.class);
  private final ThreadLocal<Lane> lane = new ThreadLocal<>();

  /** Until when a thread of a pool is busy. */
  private final ThreadLocal<long[]> busyUntilMs = ThreadLocal.withInitial(() -> new long[1]);

  private long pathMs; // the driver's clock
  private long joinedMs; // the end of the last request of a pool's thread
  private long cleanUpMs;
  private boolean executorsAreAwaited;

  /** By thread, its time in the store. */
  private final Map<Long, AtomicLong> storeNanos = new ConcurrentHashMap<>();

  private final AtomicLong answeringNanos = new AtomicLong();
  private volatile long cleanUpThread; // 0 before the first clean-up
  private volatile long cleanUpNanos; // of this thread, as of the last look

  private Meter() {}

  /** Runs a step of the driver's critical path. */
  void onPath(Step step) throws Exception {
    in(Lane.PATH, step);
  }

  /** Runs a step of the driver for which no batch waits. */
  void aside(Step step) throws Exception {
    in(Lane.ASIDE, step);
  }

  interface Step {
    void run() throws Exception;
  }

  /** Answers an executor's question as the driver, which answers one at a time. */
  Object answering(Callable<Object> answer) throws Exception {
    Object[] answered = new Object[1];
    long before = ownNanos();
    onPath(() -> answered[0] = answer.call());
    answeringNanos.addAndGet(ownNanos() - before);
    return answered[0];
  }

  /** CPU time of all answers so far. */
  long answeringNanos() {
    return answeringNanos.get();
  }

  private void in(Lane wanted, Step step) throws Exception {
    Lane before = lane.get();
    lane.set(wanted);
    try {
      step.run();
    } finally {
      lane.set(before);
    }
  }

  /** While the driver publishes a batch, it waits for all executors that it asked. */
  synchronized void awaitExecutors(boolean awaited) {
    executorsAreAwaited = awaited;
  }

  /** Counts a request of a file system of this role, and runs it. */
  <T> T request(Kind kind, boolean byExecutor, Supplier<T> answer) {
    Thread thread = Thread.currentThread();
    Role role = byExecutor ? Role.EXECUTOR : Role.DRIVER;
    if (thread.getName().equals(CLEAN_UP_THREAD)) {
      role = Role.CLEAN_UP;
      if (cleanUpThread != thread.getId()) {
        cleanUpThread = thread.getId();
        cleanUpNanos = 0;
      }
    }
    count(kind, role);
    if (role == Role.EXECUTOR) {
      return answer.get();
    }
    long before = THREADS.getCurrentThreadCpuTime();
    T answered = answer.get();
    storeNanos
        .computeIfAbsent(thread.getId(), id -> new AtomicLong())
        .addAndGet(THREADS.getCurrentThreadCpuTime() - before);
    return answered;
  }

  private synchronized void count(Kind kind, Role role) {
    counts.computeIfAbsent(role, key -> new EnumMap<>(Kind.class)).merge(kind, 1L, Long::sum);
    if (role == Role.CLEAN_UP) {
      cleanUpMs += kind.ms;
    } else if (lane.get() == Lane.PATH) {
      pathMs = Math.max(pathMs, joinedMs) + kind.ms;
    } else if (lane.get() == null && (role == Role.DRIVER || executorsAreAwaited)) {
      long[] busy = busyUntilMs.get();
      busy[0] = Math.max(busy[0], pathMs) + kind.ms;
      joinedMs = Math.max(joinedMs, busy[0]);
    }
  }

  /** CPU time of a thread so far, without its time in the store. */
  private long ownNanos(long thread) {
    AtomicLong inStore = storeNanos.get(thread);
    return THREADS.getThreadCpuTime(thread) - (inStore == null ? 0 : inStore.get());
  }

  long ownNanos() {
    return ownNanos(Thread.currentThread().getId());
  }

  /** CPU time so far of Spark's threads for messages, which serve both sides here. */
  long messageNanos() {
    long sum = 0;
    for (var thread : THREADS.getThreadInfo(THREADS.getAllThreadIds())) {
      if (thread != null
          && (thread.getThreadName().startsWith("dispatcher-")
              || thread.getThreadName().startsWith("ForkJoinPool.commonPool-"))) {
        sum += Math.max(0, THREADS.getThreadCpuTime(thread.getThreadId()));
      }
    }
    return sum;
  }

  /** CPU time of clean-ups since the last call. */
  long takeCleanUpNanos() {
    long now = cleanUpThread == 0 ? 0 : ownNanos(cleanUpThread);
    long fresh = now - cleanUpNanos;
    cleanUpNanos = now;
    return fresh;
  }

  /** All sums so far, by name. */
  synchronized Map<String, Long> sums() {
    Map<String, Long> sums = new LinkedHashMap<>();
    for (Role role : Role.values()) {
      for (Kind kind : Kind.values()) {
        long count = counts.getOrDefault(role, Map.of()).getOrDefault(kind, 0L);
        sums.put((role + "_" + kind).toLowerCase(Locale.ROOT), count);
      }
    }
    pathMs = Math.max(pathMs, joinedMs);
    sums.put("path_ms", pathMs);
    sums.put("clean_up_ms", cleanUpMs);
    return sums;
  }
}
