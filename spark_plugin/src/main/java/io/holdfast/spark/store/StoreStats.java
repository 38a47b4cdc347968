package io.holdfast.spark.store;

/**
 * The content of a native store, and its work since it was opened: {@link StoreMetrics} says what
 * each counter counts. The native side makes these records (rust/jni/src/store.rs).
 *
 * @param unmerged changelogs of the store's version that are in no run, as it stands now
 * @param runs base image and delta runs that make up this version, as it stands now
 * @param storedBytes of the segments in files that make up this version, as it stands now
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
