package io.holdfast.spark.isolation;

import io.holdfast.spark.rpc.DriverRequest.Attempt;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.LongConsumer;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A guarded operator in one batch: the attempts of its tasks, their failures, the decisions. */
final class GuardedBatch {
  private static final Logger LOG = LoggerFactory.getLogger(GuardedBatch.class);

  /** How long the last attempt before Spark gives up waits until it is the only one. */
  private static final long ALONE_MS = 30_000;

  private final Guard guard;
  final GuardKey key;
  final QueryRun run;
  private final String name;

  /** The sink may have the batch. */
  private boolean sealed;

  /** By partition that was parked before, the batches that are pending, oldest first. */
  private final Map<Integer, List<Long>> pending;

  /** Why the batch parks no more partitions than its marker names, or null. */
  private final String closed;

  /** Partitions whose tasks ask before they begin. They travel with the stage. */
  final Set<Integer> suspects = ConcurrentHashMap.newKeySet();

  /** By partition, whether it is parked in this batch; absent until that is decided. */
  private final Map<Integer, Boolean> decided = new HashMap<>();

  private final Map<Integer, Integer> failures = new HashMap<>();
  private final Map<Integer, String> errors = new HashMap<>();

  /** By attempt, Spark's number of the task. */
  private final Map<Attempt, Long> running = new HashMap<>();

  private final Set<Attempt> ended = new HashSet<>();

  private SQLMetric since;

  /** The RDDs of the guard. A stage that computes one of them is guarded. */
  final Set<Integer> rdds = ConcurrentHashMap.newKeySet();

  /** Stages that run. Two of them are two jobs over this batch. */
  private final Set<Integer> stages = new HashSet<>();

  /**
   * @param name of the operator
   * @param sealed whether an earlier run may have reached the sink with the batch
   */
  GuardedBatch(
      Guard guard, String name, Map<Integer, List<Long>> pending, boolean sealed, String closed) {
    this.guard = guard;
    key = guard.key();
    run = guard.run();
    this.name = name;
    this.pending = pending;
    this.sealed = sealed;
    this.closed = closed;
    suspects.addAll(pending.keySet());
    Marker marker = run.marker(key.batch());
    if (marker != null) {
      suspects.addAll(marker.parked().keySet());
      marker.parked().keySet().forEach(partition -> decided.put(partition, true));
    }
  }

  synchronized void stageBegan(int stage) {
    stages.add(stage);
  }

  synchronized void stageEnded(int stage) {
    stages.remove(stage);
  }

  synchronized void began(Attempt attempt, long task) {
    running.put(attempt, task);
  }

  /**
   * An attempt ended.
   *
   * @param failure why, if the failure counts; null otherwise
   */
  synchronized void ended(Attempt attempt, boolean success, String failure) {
    running.remove(attempt);
    ended.add(attempt);
    int partition = attempt.partition();
    if (success && decided.putIfAbsent(partition, false) == null) {
      delivered(partition);
    }
    if (failure != null) {
      failures.merge(partition, 1, Integer::sum);
      if (guard.seals() && !sealed) {
        run.fail(key.batch(), marker());
      }
      errors.put(partition, failure);
    }
    notifyAll();
  }

  /** A new marker. It is sealed if an earlier run may have reached the sink. */
  private Marker marker() {
    return Marker.of(key.operator(), name, guard.times(), sealed);
  }

  /** Makes durable that the sink may have the batch, before it has it. */
  synchronized void seal() {
    sealed = true;
    run.seal(key.batch());
  }

  private void delivered(int partition) {
    if (pending.containsKey(partition)) {
      run.delivered(partition);
      LOG.warn(
          "Partition {} of {} (operator {}) has caught up in batch {}, with the rows of {} parked"
              + " batches.",
          partition, name, key.operator(), key.batch(), pending.get(partition).size());
    }
  }

  /**
   * Returns whether an attempt parks its partition. The decision holds for the whole batch.
   *
   * @param task its number
   * @param kill ends a task that runs beside the attempt
   */
  synchronized boolean parks(Attempt attempt, long task, LongConsumer kill)
      throws InterruptedException {
    boolean parks = decide(attempt, kill);
    if (!parks && !ended.contains(attempt)) {
      // Spark may tell later that the attempt began.
      running.put(attempt, task);
    }
    return parks;
  }

  private boolean decide(Attempt attempt, LongConsumer kill) throws InterruptedException {
    int partition = attempt.partition();
    Boolean known = decided.get(partition);
    if (known != null) {
      return known;
    }
    if (run.rests(partition, key.batch()) && mayPark(partition)) {
      park(partition, null);
      return true;
    }
    if (!isLast(attempt) || !mayPark(partition) || !waitUntilAlone(attempt, kill)) {
      return Boolean.TRUE.equals(decided.get(partition));
    }
    park(partition, errors.getOrDefault(partition, "unknown"));
    return true;
  }

  /** Returns whether the job, or a partition that was parked before, has no failure to spare. */
  private boolean isLast(Attempt attempt) {
    int unknown = (int) earlier(attempt).stream().filter(one -> !ended.contains(one)).count();
    int failuresMax = pending.containsKey(attempt.partition()) ? 1 : guard.attempts();
    return failures.getOrDefault(attempt.partition(), 0) + unknown >= failuresMax;
  }

  private static Set<Attempt> earlier(Attempt attempt) {
    Set<Attempt> earlier = new HashSet<>();
    for (int number = 0; number < attempt.number(); number++) {
      earlier.add(
          new Attempt(attempt.stage(), attempt.stageAttempt(), attempt.partition(), number));
    }
    return earlier;
  }

  private boolean mayPark(int partition) {
    String why = closed;
    long parked =
        decided.values().stream().filter(park -> park).count()
            + pending.keySet().stream().filter(other -> !decided.containsKey(other)).count();
    int parkedMax = guard.parkedMax();
    int batchesMax = guard.conf().isolationMaxBatches;
    if (!pending.containsKey(partition) && parked >= parkedMax) {
      why = String.format("%d partitions are parked, the limit is %d", parked, parkedMax);
    } else if (pending.getOrDefault(partition, List.of()).size() >= batchesMax) {
      why = String.format("the rows of %d batches are parked, which is the limit", batchesMax);
    } else if (stages.size() > 1) {
      why = "two jobs read the batch at the same time";
    }
    if (why != null) {
      LOG.error(
          "Partition {} of {} (operator {}) fails in batch {} and is not parked: {}. If it keeps"
              + " failing, the query fails.",
          partition, name, key.operator(), key.batch(), why);
    }
    return why == null;
  }

  /** Waits until no other attempt can deliver the partition; false if one may still do so. */
  private boolean waitUntilAlone(Attempt attempt, LongConsumer kill) throws InterruptedException {
    long deadline = System.nanoTime() + ALONE_MS * 1_000_000;
    while (true) {
      Map<Attempt, Long> others = new HashMap<>(running);
      others.keySet()
          .removeIf(one -> one.partition() != attempt.partition() || one.equals(attempt));
      if (decided.containsKey(attempt.partition())) {
        return false;
      }
      if (others.isEmpty() && ended.containsAll(earlier(attempt))) {
        // Some of the attempts may have been killed, which is no failure.
        return isLast(attempt);
      }
      long leftMs = (deadline - System.nanoTime()) / 1_000_000;
      if (leftMs <= 0) {
        return false;
      }
      others.values().forEach(kill::accept);
      wait(Math.min(leftMs, 1_000));
    }
  }

  /** Shows in this metric the oldest batch whose input is pending after this one. */
  synchronized void showSince(SQLMetric metric) {
    since = metric;
    show();
  }

  private void show() {
    long oldest =
        decided.keySet().stream()
            .filter(decided::get)
            .mapToLong(parked -> pending.getOrDefault(parked, List.of(key.batch())).get(0))
            .min()
            .orElse(-1);
    run.showsMetrics = oldest >= 0;
    since.set(Math.max(0, oldest));
  }

  /**
   * @param error of the last attempt; null if it was not tried
   */
  private void park(int partition, String error) {
    run.park(key.batch(), marker(), partition, pending.containsKey(partition), error);
    decided.put(partition, true);
    suspects.add(partition);
    show();
    if (error == null) {
      return;
    }
    LOG.error(
        "Partition {} of {} (operator {}) is parked in batch {} after {} failures of its task. The"
            + " batch completes without its rows. They are stored in the checkpoint and come with a"
            + " later batch; the next try is in batch {}, or when the query starts again. To look"
            + " at them: holdfast parked {}. The last failure: {}",
        partition,
        name,
        key.operator(),
        key.batch(),
        failures.get(partition),
        run.nextTry(partition, key.batch()),
        run.checkpoint,
        error);
  }
}
