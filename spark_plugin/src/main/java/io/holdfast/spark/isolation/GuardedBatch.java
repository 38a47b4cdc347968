package io.holdfast.spark.isolation;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.rpc.DriverRequest.Attempt;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import java.util.Collections;
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
  final Set<Integer> suspects = Collections.synchronizedSet(new HashSet<>());

  /**
   * By partition, the groups of keys whose rows are parked in this batch: none if the stage runs, all
   * if it does not. Absent until an attempt asks or succeeds.
   */
  private final Map<Integer, List<Integer>> waits = new HashMap<>();

  /** Partitions for which that does not change any more. */
  private final Set<Integer> decided = new HashSet<>();

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
      marker.parked().forEach((partition, parked) -> follow(partition, parked.waits()));
    }
  }

  private void follow(int partition, List<Integer> groups) {
    waits.put(partition, groups);
    if (KeyGroups.share(groups) == 1) {
      decided.add(partition);
    } else if (guard.keys() == null) {
      throw new HoldfastException(
          String.format(
              "An earlier run of batch %d divided partition %d of %s (operator %d) by keys, and the"
                  + " program of this run cannot. End the batch with the program of that run.",
              key.batch(), partition, name, key.operator()));
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
    if (success && decided.add(partition)) {
      delivered(partition, waits.computeIfAbsent(partition, key -> List.of()));
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

  private void delivered(int partition, List<Integer> groups) {
    if (!groups.isEmpty()) {
      if (isTry(partition, groups)) {
        run.progressed(partition, key.batch());
        LOG.warn(
            "Keys of partition {} of {} (operator {}) have caught up in batch {}. It is parked with"
                + " {} of its keys.",
            partition, name, key.operator(), key.batch(), KeyGroups.share(groups));
      }
    } else if (pending.containsKey(partition)) {
      run.delivered(partition);
      LOG.warn(
          "Partition {} of {} (operator {}) has caught up in batch {}, with the rows of {} parked"
              + " batches.",
          partition, name, key.operator(), key.batch(), pending.get(partition).size());
    }
  }

  /**
   * Returns the groups of keys whose rows an attempt parks. The decision of the attempt whose result
   * Spark takes holds for the whole batch.
   *
   * @param task its number
   * @param kill ends a task that runs beside the attempt
   */
  synchronized List<Integer> waits(Attempt attempt, long task, LongConsumer kill)
      throws InterruptedException {
    decide(attempt, kill);
    List<Integer> groups = waits.get(attempt.partition());
    if (KeyGroups.share(groups) < 1 && !ended.contains(attempt)) {
      // Spark may tell later that the attempt began.
      running.put(attempt, task);
    }
    return groups;
  }

  private void decide(Attempt attempt, LongConsumer kill) throws InterruptedException {
    int partition = attempt.partition();
    if (!waits.containsKey(partition)) {
      List<Integer> first = first(partition);
      if (first.isEmpty() || !mayPark(partition)) {
        waits.put(partition, List.of());
      } else {
        park(partition, first, null);
      }
    }
    List<Integer> now = waits.get(partition);
    if (!decided.contains(partition)
        && isLast(attempt)
        && mayPark(partition)
        && waitUntilAlone(attempt, kill)
        && now == waits.get(partition)) {
      park(partition, next(partition, now), errors.getOrDefault(partition, "unknown"));
    }
  }

  /** The groups of keys that wait in the first attempts. */
  private List<Integer> first(int partition) {
    if (!pending.containsKey(partition)) {
      return List.of();
    }
    List<Integer> before = before(partition);
    if (run.rests(partition, key.batch())) {
      return before;
    }
    // The program may be a repaired one.
    return run.isUntried(partition) ? List.of() : withoutFirst(before);
  }

  /** The groups that wait after a failure: a try failed, or keys that have not waited. */
  private List<Integer> next(int partition, List<Integer> now) {
    List<Integer> before = before(partition);
    boolean hasAttempts = failures.getOrDefault(partition, 0) < guard.attempts();
    if (guard.keys() == null || !hasAttempts || !isTry(partition, now)) {
      return KeyGroups.ALL;
    }
    return now.equals(withoutFirst(before)) ? KeyGroups.divided(before) : before;
  }

  /** Returns whether keys that waited before the batch do not wait with these groups. */
  private boolean isTry(int partition, List<Integer> groups) {
    return pending.containsKey(partition)
        && (groups.isEmpty() || groups.equals(withoutFirst(before(partition))));
  }

  private List<Integer> before(int partition) {
    return guard.keys() == null ? KeyGroups.ALL : run.waits(partition, key.batch());
  }

  /** Returns whether groups have the keys that waited before the batch. */
  synchronized boolean isStill(int partition, List<Integer> groups) {
    return KeyGroups.share(groups) == KeyGroups.share(before(partition));
  }

  private static List<Integer> withoutFirst(List<Integer> groups) {
    return List.copyOf(groups.subList(1, groups.size()));
  }

  /** Returns whether the job, or a try of keys that wait, has no failure to spare. */
  private boolean isLast(Attempt attempt) {
    int unknown = (int) earlier(attempt).stream().filter(one -> !ended.contains(one)).count();
    int partition = attempt.partition();
    int failuresMax = isTry(partition, waits.get(partition)) ? 1 : guard.attempts();
    return failures.getOrDefault(partition, 0) + unknown >= failuresMax;
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
    Set<Integer> parked = new HashSet<>(waits.keySet());
    parked.addAll(pending.keySet());
    // Those that were parked before may be parked again, until they have caught up.
    parked.removeIf(
        other ->
            waits.getOrDefault(other, List.of()).isEmpty()
                && (decided.contains(other) || !pending.containsKey(other)));
    int parkedMax = guard.parkedMax();
    int batchesMax = guard.conf().isolationMaxBatches;
    if (!pending.containsKey(partition) && parked.size() >= parkedMax) {
      why = String.format("%d partitions are parked, the limit is %d", parked.size(), parkedMax);
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
      if (decided.contains(attempt.partition())) {
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
        waits.keySet().stream()
            .filter(partition -> !waits.get(partition).isEmpty())
            .mapToLong(parked -> pending.getOrDefault(parked, List.of(key.batch())).get(0))
            .min()
            .orElse(-1);
    run.showsMetrics = oldest >= 0;
    since.set(Math.max(0, oldest));
  }

  /**
   * @param error of the last attempt; null if it was not tried
   */
  private void park(int partition, List<Integer> groups, String error) {
    run.park(key.batch(), marker(), partition, pending.containsKey(partition), groups, error);
    follow(partition, groups);
    suspects.add(partition);
    show();
    if (error == null) {
      return;
    }
    List<Integer> before = before(partition);
    boolean fresh = KeyGroups.share(groups) > KeyGroups.share(before);
    boolean divided = groups.size() > before.size();
    long next = run.nextTry(partition, key.batch(), fresh, divided);
    if (KeyGroups.share(groups) < 1) {
      LOG.warn(
          "Partition {} of {} (operator {}) is parked in batch {} with {} of its keys. The next try"
              + " is in batch {}. The last failure: {}",
          partition,
          name,
          key.operator(),
          key.batch(),
          KeyGroups.share(groups),
          next,
          error);
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
        next,
        run.checkpoint,
        error);
  }
}
