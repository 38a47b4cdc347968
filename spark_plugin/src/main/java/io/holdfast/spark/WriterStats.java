package io.holdfast.spark;

/**
 * What the writer of a manager did so far. The native side makes these (rust/jni/src/manager.rs).
 *
 * @param storedBytes of the segments, as they are in files
 */
record WriterStats(long filesCreated, long filesSealed, long segments, long storedBytes) {
  static final WriterStats NOTHING = new WriterStats(0, 0, 0, 0);

  WriterStats plus(WriterStats more) {
    return new WriterStats(
        filesCreated + more.filesCreated,
        filesSealed + more.filesSealed,
        segments + more.segments,
        storedBytes + more.storedBytes);
  }

  WriterStats minus(WriterStats before) {
    return new WriterStats(
        filesCreated - before.filesCreated,
        filesSealed - before.filesSealed,
        segments - before.segments,
        storedBytes - before.storedBytes);
  }
}
