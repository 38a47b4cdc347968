package io.holdfast.spark.store;

/** The work of a store so far, with the time that loads and commits took. */
public record TimedStats(StoreStats counters, long loadMs, long appendMs) {}
