package io.holdfast.spark;

import io.holdfast.spark.files.SegmentFolder;

/**
 * Reads the segments of checkpoints in one folder. No manager is needed. Files that were read stay open,
 * and small segments are read together with those around them, so that all of a checkpoint takes few
 * requests.
 *
 * <p>Errors of all methods:
 *
 * <ul>
 *   <li>{@link MissingStateException} if the physical file is missing
 *   <li>{@link DamagedStateException} if the bytes are not those that were written, or another owner's
 *   <li>{@link UnsupportedStateException} if a newer version of Holdfast wrote it
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
   * Returns the payload of a segment, after all of it was verified.
   *
   * @param reference as checkpoints hold it
   */
  public byte[] read(
      byte[] reference, String pipeline, String operator, String region, String store) {
    return Native.readSegment(stored, reference, pipeline, operator, region, store);
  }

  /**
   * Returns the size of a segment's payload in bytes, after all of it was verified. The payload does not
   * leave the JVM.
   */
  public long bytes(
      byte[] reference, String pipeline, String operator, String region, String store) {
    return Native.segmentBytes(stored, reference, pipeline, operator, region, store);
  }

  /**
   * Returns what a segment of a state store holds, after all of it was verified, as the extension of
   * Python decodes it.
   */
  public byte[] inspect(byte[] reference) {
    return Native.inspectSegment(stored, reference);
  }

  /** Closes all files. Closing twice does nothing. */
  @Override
  public void close() {
    long open = stored;
    stored = 0;
    if (open != 0) {
      Native.closeStored(open);
    }
  }
}
