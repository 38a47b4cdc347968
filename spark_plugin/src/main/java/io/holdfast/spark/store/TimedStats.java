package io.holdfast.spark.store;

/**
 * The work of a store so far, with the time that it took.
 *
 * @param loadMs milliseconds spent on loading versions
 * @param appendMs milliseconds spent on commits
 */
public record TimedStats(StoreStats counters, long loadMs, long appendMs) {}
