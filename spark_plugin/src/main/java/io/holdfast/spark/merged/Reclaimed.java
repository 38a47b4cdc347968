package io.holdfast.spark.merged;

/**
 * The result of a pass over the files of a folder. The native side makes these records
 * (rust/jni/src/driver.rs).
 *
 * @param done for the log; empty if the pass changed nothing
 * @param files that remain, with files that are written to; {@code bytes} is their size
 * @param physicalBytes of the closed files that remain
 * @param pinnedBytes of the closed files that no retained version needs
 * @param wasteful the most wasteful of the closed files
 */
public record Reclaimed(
    String done, long files, long bytes, long physicalBytes, long pinnedBytes, FileId[] wasteful) {}
