package io.holdfast.spark;

import io.holdfast.spark.merged.Compression;
import io.holdfast.spark.merged.SegmentFolder;
import java.util.Map;

/**
 * Writes the segments of a copy of a checkpoint into a new folder. Nothing else writes to the
 * folder. Its files are sealed when the image is closed.
 */
public final class SegmentImage implements AutoCloseable {
  /** Numbers of the kinds of segments that copies have, see rust/core/FORMAT.md. */
  private static final Map<String, Integer> KINDS = Map.of("snapshot", 3, "in_flight", 4);

  private long manager;

  SegmentImage(SegmentFolder folder, long maxFileBytes) {
    // Terms of managers are times, so a later pipeline in this folder gets a newer term.
    long term = System.currentTimeMillis();
    int compression = Compression.LZ4.code;
    manager =
        Native.openRegional(
            folder.name, folder.files(), term, new long[0], "", maxFileBytes, compression);
  }

  /**
   * Writes a segment.
   *
   * @param created id of the checkpoint that the segment says it was written for
   * @param kind {@code "snapshot"} or {@code "in_flight"}
   * @return its reference, as checkpoints hold it
   */
  public byte[] append(
      String pipeline,
      String operator,
      String region,
      String store,
      long created,
      String kind,
      long entries,
      byte[] payload) {
    return Native.appendSegment(
        manager, pipeline, operator, region, store, created, number(kind), entries, payload);
  }

  /**
   * Copies a segment of another folder, verified. The payload does not leave the JVM.
   *
   * @param from folder of the original, on any file system
   * @param reference of the original
   * @param fromPipeline the pipeline of its owner in the original, which may have another name
   * @return its reference in the copy
   * @throws MissingStateException if the physical file of the original is missing
   * @throws DamagedStateException if the original is damaged, or belongs to another owner
   */
  public byte[] copy(
      StoredSegments from,
      byte[] reference,
      String fromPipeline,
      String pipeline,
      String operator,
      String region,
      String store,
      long created,
      String kind,
      long entries) {
    return Native.copySegment(
        manager,
        from.handle(),
        reference,
        fromPipeline,
        pipeline,
        operator,
        region,
        store,
        created,
        number(kind),
        entries);
  }

  /**
   * Copies a table of another folder as one segment, page by page.
   *
   * @param id of its commit
   * @return id of the new commit, number of keys, references of its segments in hexadecimal
   * @throws MissingStateException if a physical file of the original is missing
   * @throws DamagedStateException if the original is damaged, or belongs to another owner
   */
  public String[] copyTable(
      StoredSegments from,
      String id,
      String fromPipeline,
      String pipeline,
      String operator,
      String region,
      String store,
      long created) {
    return Native.copyTable(
        manager, from.handle(), id, fromPipeline, pipeline, operator, region, store, created);
  }

  private static int number(String kind) {
    Integer number = KINDS.get(kind);
    if (number == null) {
      throw new IllegalArgumentException(
          "kind: expected one of " + KINDS.keySet() + ", found " + kind);
    }
    return number;
  }

  /** Makes all writes for a checkpoint survive a machine crash. */
  public void persist(long created) {
    Native.persistSegments(manager, created);
  }

  /** Seals the files. A second call does nothing. */
  @Override
  public void close() {
    long open = manager;
    manager = 0;
    if (open != 0) {
      Native.closeRegional(open);
    }
  }
}
