package io.holdfast.spark.store;

/**
 * The content of a native store, and its work since it was opened. The native side makes these
 * records (rust/jni/src/store.rs).
 *
 * @param loads versions read from files
 * @param rewinds versions served by undoing a commit
 * @param writtenBytes of commits, before compression
 * @param emptyCommits commits that wrote nothing
 * @param rebuilds versions rebuilt because a run was damaged
 * @param changelogs commits that wrote one
 * @param coldReads blocks of runs that were read because keys were not in memory
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
