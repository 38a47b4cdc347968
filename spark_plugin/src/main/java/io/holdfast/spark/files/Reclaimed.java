package io.holdfast.spark.files;

/**
 * What a pass over the files of a folder did. The native side makes these (rust/jni/src/driver.rs).
 *
 * @param done for the log; empty when the pass changed nothing
 * @param files that are left, those that are written to included
 * @param bytes of these
 * @param physicalBytes of the closed files that are left
 * @param pinnedBytes how many of these no retained version needs
 * @param wasteful the most wasteful of these files
 */
public record Reclaimed(
    String done,
    long files,
    long bytes,
    long physicalBytes,
    long pinnedBytes,
    FileId[] wasteful) {}
