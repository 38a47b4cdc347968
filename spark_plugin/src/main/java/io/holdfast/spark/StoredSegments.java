package io.holdfast.spark;

import io.holdfast.spark.merged.SegmentFolder;

/**
 * Reads the segments of checkpoints in one folder, without a manager. Files stay open, and small
 * segments are read together with their neighbours, so that a whole checkpoint takes few requests.
 *
 * <p>Errors of all methods:
 *
 * <ul>
 *   <li>{@link MissingStateException} if the physical file is missing
 *   <li>{@link DamagedStateException} if the segment is damaged, or belongs to another owner
 *   <li>{@link NewerFormatException} if a newer version of Holdfast wrote it
 *   <li>{@link HoldfastException} if storage failed
 * </ul>
 */
public final class StoredSegments implements AutoCloseable {
  private long stored;

  StoredSegments(SegmentFolder folder) {
    stored = Native.openStored(folder.name, folder.files());
  }

  long handle() {
    return stored;
  }

  /**
   * Returns the payload of a segment, verified.
   *
   * @param reference as checkpoints hold it
   */
  public byte[] read(
      byte[] reference, String pipeline, String operator, String region, String store) {
    return Native.readSegment(stored, reference, pipeline, operator, region, store);
  }

  /**
   * Returns the size of a segment's payload in bytes, verified. The payload does not leave the JVM.
   */
  public long bytes(
      byte[] reference, String pipeline, String operator, String region, String store) {
    return Native.segmentBytes(stored, reference, pipeline, operator, region, store);
  }

  /**
   * Returns all rows of a table.
   *
   * @param id of its commit
   */
  public byte[] readTable(
      String id, String pipeline, String operator, String region, String store) {
    return Native.readTable(stored, id, pipeline, operator, region, store);
  }

  /** Returns the content of a segment of a state store, verified. Python's extension decodes it. */
  public byte[] inspect(byte[] reference) {
    return Native.inspectSegment(stored, reference);
  }

  /** Closes all files. A second call does nothing. */
  @Override
  public void close() {
    long open = stored;
    stored = 0;
    if (open != 0) {
      Native.closeStored(open);
    }
  }
}
