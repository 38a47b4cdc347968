package io.holdfast.spark.merged;

/** Counters of the writer of a manager. The native side makes them (rust/jni/src/folders.rs). */
public record WriterStats(long filesCreated, long filesSealed, long segments, long storedBytes) {
  public static final WriterStats NOTHING = new WriterStats(0, 0, 0, 0);

  public WriterStats plus(WriterStats more) {
    return new WriterStats(
        filesCreated + more.filesCreated,
        filesSealed + more.filesSealed,
        segments + more.segments,
        storedBytes + more.storedBytes);
  }

  public WriterStats minus(WriterStats before) {
    return new WriterStats(
        filesCreated - before.filesCreated,
        filesSealed - before.filesSealed,
        segments - before.segments,
        storedBytes - before.storedBytes);
  }
}
