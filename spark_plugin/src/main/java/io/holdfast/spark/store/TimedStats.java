package io.holdfast.spark.store;

/** The work of a store so far, with the time of loads and commits. */
public record TimedStats(StoreStats counters, long loadMs, long appendMs) {}
