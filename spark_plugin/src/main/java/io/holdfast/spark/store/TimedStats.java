package io.holdfast.spark.store;

/**
 * What a store did so far, with the time that it took.
 *
 * @param loadMs milliseconds spent on loading versions
 * @param appendMs milliseconds spent on commits
 */
public record TimedStats(StoreStats counters, long loadMs, long appendMs) {}
