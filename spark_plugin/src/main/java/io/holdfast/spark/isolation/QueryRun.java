package io.holdfast.spark.isolation;

import io.holdfast.spark.HoldfastException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** The knowledge of the driver about isolation in one run of a query. */
final class QueryRun {
  final UUID id;
  final Configuration conf;
  final Path checkpoint;

  /** By batch; null until the first batch runs, because a plan that is only shown has no folder. */
  private TreeMap<Long, Marker> markers;

  /** By partition; in memory only, so a restart tries every parked partition at once. */
  private final Map<Integer, Backoff> backoffs = new HashMap<>();

  /**
   * When a parked partition is tried again: 1, 2, 4, ... batches after the last try.
   *
   * @param pause batches between the last try and the next
   * @param next batch of the next try
   */
  private record Backoff(long pause, long next) {}

  private boolean warned;

  private boolean warnedOfShape;

  /** True while the operator has metrics of parked partitions. */
  volatile boolean showsMetrics;

  /**
   * @param conf Hadoop's settings of the session
   */
  QueryRun(UUID id, Path checkpoint, Configuration conf) {
    this.id = id;
    this.conf = conf;
    this.checkpoint = checkpoint;
  }

  private TreeMap<Long, Marker> markers() {
    if (markers == null) {
      markers = Marker.readAll(checkpoint, conf);
    }
    return markers;
  }

  /** True for the first caller. */
  synchronized boolean mayWarn() {
    boolean first = !warned;
    warned = true;
    return first;
  }

  /** True for the first caller. */
  synchronized boolean mayWarnOfShape() {
    boolean first = !warnedOfShape;
    warnedOfShape = true;
    return first;
  }

  /** The marker of a batch, or null. */
  synchronized Marker marker(long batch) {
    return markers().get(batch);
  }

  /** The times of a batch whose input is pending. */
  synchronized Map<String, Long> timesOf(long batch) {
    Marker marker = markers().get(batch);
    if (marker == null) {
      throw new HoldfastException(
          String.format(
              "Rows of batch %s are parked in %s, but %s/isolation/%s is gone: without it the rows"
                  + " cannot be processed as in their own batch. Put the file back from a copy.",
              batch, checkpoint, checkpoint, batch));
    }
    return marker.times();
  }

  /**
   * Makes durable what became of a partition in a batch; false if that is durable already.
   *
   * @param fresh the marker of a batch that has none
   * @param again whether input of the partition is pending already
   * @param waits groups of keys; none if the partition is delivered
   * @param error of a try in this batch; null without one
   */
  synchronized boolean settle(
      long batch, Marker fresh, int partition, boolean again, List<Integer> waits, String error) {
    Marker marker = markers().getOrDefault(batch, fresh);
    Marker.Parked now = marker.parked().get(partition);
    if (now != null && now.waits().equals(waits)) {
      return false;
    }
    Marker.Parked last = again ? lastParked(batch, partition) : null;
    int tries = last == null ? 0 : last.tries();
    long nowMs = System.currentTimeMillis();
    Marker.Parked parked =
        error == null && last != null
            ? new Marker.Parked(nowMs, tries, last.error(), waits)
            : new Marker.Parked(nowMs, tries + 1, error, waits);
    write(batch, marker.with(partition, parked));
    return true;
  }

  /** The error of the last try of a partition that was parked before a batch; null without one. */
  synchronized String lastError(int partition, long batch) {
    Marker.Parked last = lastParked(batch, partition);
    return last == null ? null : last.error();
  }

  /** The groups of keys of a partition that waited before a batch. */
  synchronized List<Integer> waits(int partition, long batch) {
    Marker.Parked last = lastParked(batch, partition);
    return last == null ? KeyGroups.ALL : last.waits();
  }

  private Marker.Parked lastParked(long batch, int partition) {
    return markers().headMap(batch, false).descendingMap().values().stream()
        .map(marker -> marker.parked().get(partition))
        .filter(Objects::nonNull)
        .findFirst()
        .orElse(null);
  }

  /** Makes durable that a task of the batch failed before the sink committed anything. */
  synchronized void fail(long batch, Marker fresh) {
    if (!markers().containsKey(batch)) {
      write(batch, fresh);
    }
  }

  /** Makes durable that the sink is about to commit. A batch without failures needs no seal. */
  synchronized void seal(long batch) {
    Marker marker = markers().get(batch);
    if (marker != null && !marker.sealed()) {
      write(batch, marker.seal());
    }
  }

  private void write(long batch, Marker marker) {
    marker.write(checkpoint, batch, conf);
    markers().put(batch, marker);
  }

  /** Deletes markers that neither a retained batch nor parked input needs. */
  synchronized void forgetBefore(long batch, Set<Long> pending) {
    Set<Long> old = new HashSet<>(markers().headMap(batch).keySet());
    old.removeAll(pending);
    old.forEach(this::forget);
  }

  /** Deletes markers of batches that were not planned yet. */
  synchronized void forgetFrom(long batch) {
    Set.copyOf(markers().tailMap(batch).keySet()).forEach(this::forget);
  }

  private void forget(long batch) {
    Marker.delete(checkpoint, batch, conf);
    markers().remove(batch);
  }

  /** Returns whether a parked partition is parked again without a try. */
  synchronized boolean rests(int partition, long batch) {
    Backoff backoff = backoffs.get(partition);
    return backoff != null && batch < backoff.next();
  }

  /**
   * A try failed; returns the batch of the next one.
   *
   * @param fresh whether keys are parked that did not wait
   * @param divided whether the next try is of less, which may succeed
   */
  synchronized long nextTry(int partition, long batch, boolean fresh, boolean divided) {
    return backoffs
        .compute(
            partition,
            (key, last) -> {
              long pause = fresh || last == null ? 1 : divided ? 2 : 2 * last.pause;
              return new Backoff(pause, batch + pause);
            })
        .next();
  }

  /** Returns whether no try has failed in this run. */
  synchronized boolean isUntried(int partition) {
    return !backoffs.containsKey(partition);
  }

  /** A try of a part succeeded, so the next one comes soon. */
  synchronized void progressed(int partition, long batch) {
    backoffs.put(partition, new Backoff(1, batch + 1));
  }

  synchronized void delivered(int partition) {
    backoffs.remove(partition);
  }
}
