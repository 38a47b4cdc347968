package io.holdfast.spark.store;

/**
 * The content of a native store, and its work since it was opened; {@link StoreMetrics} describes
 * the counters. The native side makes these records (rust/jni/src/store.rs).
 *
 * @param unmerged changelogs of the store's current version that are in no run
 * @param runs base image and delta runs of this version
 * @param storedBytes of this version's segments in files
 */
public record StoreStats(
    long keys,
    long memoryBytes,
    long loads,
    long rewinds,
    long writtenBytes,
    long emptyCommits,
    long rebuilds,
    long changelogs,
    long coldReads,
    long unmerged,
    long runs,
    long storedBytes) {}
