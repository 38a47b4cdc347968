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
import java.util.concurrent.CopyOnWriteArrayList;
import java.util.function.LongConsumer;
import org.apache.spark.sql.execution.metric.SQLMetric;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOpStateStoreCheckpointInfo;
import org.apache.spark.util.CollectionAccumulator;
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

  /** Why the batch parks no partition that it may have delivered in an earlier run, or null. */
  private final String closed;

  /** Partitions that an earlier run of the batch settled. */
  private final Set<Integer> settledBefore = new HashSet<>();

  /** Receives the partitions that tasks, whose result Spark took, delivered or parked to the end. */
  final CollectionAccumulator<Integer> through;

  /** Receive the commits of tasks whose result Spark took. */
  private final List<CollectionAccumulator<StatefulOpStateStoreCheckpointInfo>> commits =
      new CopyOnWriteArrayList<>();

  /** Partitions whose tasks ask before they begin. They travel with the stage. */
  final Set<Integer> suspects = Collections.synchronizedSet(new HashSet<>());

  /**
   * By partition, the groups of keys whose rows are parked in this batch: none if the stage runs, all
   * if it does not. Absent until an attempt asks.
   */
  private final Map<Integer, List<Integer>> waits = new HashMap<>();

  /** By attempt, these groups of the partitions that it asked for. */
  private final Map<Attempt, Map<Integer, List<Integer>>> answers = new HashMap<>();

  /** Partitions that are {@link #through}, as far as somebody asked. */
  private final Set<Integer> knownThrough = new HashSet<>();

  /** By partition, failures of attempts that may have failed for it. */
  private final Map<Integer, Integer> failures = new HashMap<>();
  private final Map<Integer, String> errors = new HashMap<>();

  /** By attempt, Spark's number of the task. */
  private final Map<Attempt, Long> running = new HashMap<>();

  private final Set<Attempt> ended = new HashSet<>();

  private SQLMetric since;

  /** The RDDs of the guard. A stage that computes one of them is guarded. */
  final Set<Integer> rdds = ConcurrentHashMap.newKeySet();

  /** Stages that run. Two of them read this batch at the same time. */
  private final Set<Integer> stages = new HashSet<>();

  /** Stages whose tasks do not compute the partition of their number each, and no other. */
  private final Set<Integer> reshaped = new HashSet<>();

  /**
   * @param name of the operator
   * @param sealed whether an earlier run may have reached the sink with the batch
   */
  GuardedBatch(
      Guard guard, String name, Map<Integer, List<Long>> pending, boolean sealed, String closed) {
    this.guard = guard;
    key = guard.key();
    run = guard.run();
    through = guard.decisions().accumulator();
    this.name = name;
    this.pending = pending;
    this.sealed = sealed;
    this.closed = closed;
    suspects.addAll(pending.keySet());
    Marker marker = run.marker(key.batch());
    if (marker != null) {
      suspects.addAll(marker.parked().keySet());
      settledBefore.addAll(marker.parked().keySet());
      marker.parked().forEach((partition, parked) -> follow(partition, parked.waits()));
    }
  }

  private void follow(int partition, List<Integer> groups) {
    double share = KeyGroups.share(groups);
    if (share > 0 && share < 1 && guard.keys() == null) {
      throw new HoldfastException(
          String.format(
              "An earlier run of batch %d divided partition %d of %s (operator %d) by keys, and the"
                  + " program of this run cannot. End the batch with the program of that run.",
              key.batch(), partition, name, key.operator()));
    }
    waits.put(partition, groups);
  }

  /** The operator reports its commits here. */
  void reports(CollectionAccumulator<StatefulOpStateStoreCheckpointInfo> infos) {
    commits.add(infos);
  }

  /**
   * @param tasks of the stage; a stage that was reshaped has another number than the operator
   */
  synchronized void stageBegan(int stage, int tasks) {
    stages.add(stage);
    if (tasks != guard.state().numPartitions()) {
      reshape(stage);
    }
  }

  private void reshape(int stage) {
    if (reshaped.add(stage) && run.mayWarnOfShape()) {
      LOG.warn(
          "A job of batch {} reads {} (operator {}, run {}) in tasks of several partitions, or"
              + " several times, as after coalesce() or union(). Failures of partitions are not"
              + " isolated in such jobs: a task that keeps failing fails the batch.",
          key.batch(), name, key.operator(), key.run());
    }
  }

  synchronized void stageEnded(int stage) {
    stages.remove(stage);
  }

  synchronized void began(Attempt attempt, long id) {
    running.put(attempt, id);
  }

  /**
   * An attempt ended.
   *
   * @param failure why, if the failure counts; null otherwise
   */
  synchronized void ended(Attempt attempt, boolean success, String failure) {
    running.remove(attempt);
    ended.add(attempt);
    Map<Integer, List<Integer>> answered = answers.getOrDefault(attempt, Map.of());
    if (success) {
      answered.forEach(
          (partition, groups) -> {
            if (!knownThrough.contains(partition) && isThrough(partition)) {
              reportDelivered(partition, groups);
            }
          });
    }
    if (failure != null) {
      boolean single = !reshaped.contains(attempt.stage());
      for (int partition : single ? Set.of(attempt.task()) : answered.keySet()) {
        failures.merge(partition, 1, Integer::sum);
        errors.put(partition, failure);
      }
      if (guard.seals() && !sealed) {
        run.fail(key.batch(), marker());
      }
    }
    notifyAll();
  }

  /**
   * Returns whether a task read a partition to its end, and Spark took the result. What became of the
   * partition then holds for the whole batch. A task that stops early does not count, although an
   * aggregation has committed its state by the first row.
   */
  private boolean isThrough(int partition) {
    if (!knownThrough.contains(partition)) {
      knownThrough.addAll(through.value());
    }
    return knownThrough.contains(partition);
  }

  /** Takes back the commits of a partition by tasks that stopped early: Spark names the first one. */
  private void forgetCommits(int partition) {
    for (CollectionAccumulator<StatefulOpStateStoreCheckpointInfo> infos : commits) {
      // The accumulator's own lock, so that no task reports in between.
      synchronized (infos) {
        List<StatefulOpStateStoreCheckpointInfo> all = infos.value();
        infos.reset();
        all.stream().filter(info -> info.partitionId() != partition).forEach(infos::add);
      }
    }
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

  private void reportDelivered(int partition, List<Integer> groups) {
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

  /** The answer to an attempt that asks what it does with a partition. */
  record Answer(List<Integer> waits, boolean still, boolean settles, String failure) {}

  /**
   * Returns the groups of keys whose rows an attempt parks. An attempt that asks again for the same
   * partition gets the same answer.
   *
   * @param id of the attempt
   * @param kill ends a task that runs beside the attempt
   */
  synchronized Answer answer(Attempt attempt, int partition, long id, LongConsumer kill)
      throws InterruptedException {
    if (attempt.task() != partition) {
      reshape(attempt.stage());
    }
    Map<Integer, List<Integer>> answered =
        answers.computeIfAbsent(attempt, one -> new HashMap<>());
    if (!answered.containsKey(partition)) {
      decide(attempt, partition, kill);
      answered.put(partition, waits.get(partition));
      if (!ended.contains(attempt)) {
        // Spark may tell later that the attempt began.
        running.put(attempt, id);
      }
    }
    List<Integer> groups = answered.get(partition);
    boolean settles = pending.containsKey(partition) || !groups.isEmpty();
    boolean still = KeyGroups.share(groups) == KeyGroups.share(before(partition));
    String failure = errors.getOrDefault(partition, run.lastError(partition, key.batch()));
    return new Answer(groups, still, settles, failure);
  }

  private void decide(Attempt attempt, int partition, LongConsumer kill)
      throws InterruptedException {
    if (!waits.containsKey(partition)) {
      List<Integer> first = isThrough(partition) ? List.of() : first(partition);
      waits.put(partition, List.of());
      if (!first.isEmpty() && mayPark(partition)) {
        park(partition, first);
      }
    }
    List<Integer> now = waits.get(partition);
    // A task of several partitions does not tell for which of them it failed. It takes back a try.
    boolean single = !reshaped.contains(attempt.stage());
    if (KeyGroups.share(now) < 1
        && !isThrough(partition)
        && (single || isTry(partition, now))
        && isLast(attempt, partition)
        && mayPark(partition)
        && waitUntilAlone(attempt, partition, kill)
        && now == waits.get(partition)) {
      park(partition, single ? next(partition, now) : before(partition));
    }
  }

  private void park(int partition, List<Integer> groups) {
    follow(partition, groups);
    forgetCommits(partition);
    suspects.add(partition);
    show();
  }

  /**
   * Makes durable what an attempt did with a partition, before Spark takes its result. Until then, a
   * partition that was parked stays parked, and one that was not is delivered by a re-run.
   *
   * @throws HoldfastException if another attempt has got another answer meanwhile
   */
  synchronized void settle(Attempt attempt, int partition) {
    List<Integer> groups = answers.getOrDefault(attempt, Map.of()).get(partition);
    if (groups == null || ended.contains(attempt) || !groups.equals(waits.get(partition))) {
      throw new HoldfastException(
          "Another attempt took over partition " + partition + " from " + attempt);
    }
    String error = groups.isEmpty() ? null : errors.get(partition);
    boolean again = pending.containsKey(partition);
    if (run.settle(key.batch(), marker(), partition, again, groups, error) && error != null) {
      report(partition, groups, error);
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

  private static List<Integer> withoutFirst(List<Integer> groups) {
    return List.copyOf(groups.subList(1, groups.size()));
  }

  /** Returns whether an attempt has no failure to spare; a try of keys that wait never has. */
  private boolean isLast(Attempt attempt, int partition) {
    int unknown = (int) earlier(attempt).stream().filter(one -> !ended.contains(one)).count();
    int failuresMax = isTry(partition, waits.get(partition)) ? 1 : guard.attempts();
    return failures.getOrDefault(partition, 0) + unknown >= failuresMax;
  }

  private static Set<Attempt> earlier(Attempt attempt) {
    Set<Attempt> earlier = new HashSet<>();
    for (int number = 0; number < attempt.number(); number++) {
      earlier.add(new Attempt(attempt.stage(), attempt.stageAttempt(), attempt.task(), number));
    }
    return earlier;
  }

  private boolean mayPark(int partition) {
    boolean again = pending.containsKey(partition);
    // A run has given the sink nothing of a pending partition unless it is settled.
    String why = again && !settledBefore.contains(partition) ? null : closed;
    Set<Integer> parked = new HashSet<>(waits.keySet());
    parked.addAll(pending.keySet());
    // Those that were parked before may be parked again, until they have caught up.
    parked.removeIf(
        other ->
            waits.getOrDefault(other, List.of()).isEmpty()
                && (knownThrough.contains(other) || !pending.containsKey(other)));
    int parkedMax = guard.parkedMax();
    int batchesMax = guard.conf().isolationMaxBatches;
    if (!again && parked.size() >= parkedMax) {
      why = String.format("%d partitions are parked, the limit is %d", parked.size(), parkedMax);
    } else if (pending.getOrDefault(partition, List.of()).size() >= batchesMax) {
      why = String.format("the rows of %d batches are parked, which is the limit", batchesMax);
    } else if (!again && stages.size() > 1) {
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
  private boolean waitUntilAlone(Attempt attempt, int partition, LongConsumer kill)
      throws InterruptedException {
    long deadline = System.nanoTime() + ALONE_MS * 1_000_000;
    while (true) {
      Map<Attempt, Long> others = new HashMap<>(running);
      others.keySet().removeIf(one -> one.equals(attempt) || !mayDeliver(one, partition));
      if (isThrough(partition)) {
        return false;
      }
      if (others.isEmpty() && ended.containsAll(earlier(attempt))) {
        // Some of the attempts may have been killed, which is no failure.
        return isLast(attempt, partition);
      }
      long leftMs = (deadline - System.nanoTime()) / 1_000_000;
      if (leftMs <= 0) {
        return false;
      }
      others.values().forEach(kill::accept);
      wait(Math.min(leftMs, 1_000));
    }
  }

  /** All tasks of a pending partition ask first. Of others, a first attempt does not. */
  private boolean mayDeliver(Attempt attempt, int partition) {
    Map<Integer, List<Integer>> answered = answers.get(attempt);
    return answered == null
        ? attempt.task() == partition && !pending.containsKey(partition)
        : answered.containsKey(partition);
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

  private void report(int partition, List<Integer> groups, String error) {
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
