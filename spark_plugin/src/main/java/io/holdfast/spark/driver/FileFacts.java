package io.holdfast.spark.driver;

import io.holdfast.spark.Native;
import io.holdfast.spark.copies.GatheredCopies;
import io.holdfast.spark.merged.FileId;
import io.holdfast.spark.merged.SegmentFolder;

/** Facts of the driver about a file that a batch needs. The core decides the next step. */
final class FileFacts {
  /** In the order of rust/jni/src/driver.rs. */
  enum Step {
    ASK,
    LOOK,
    GATHER,
    COMPLETE,
    DONE,
    LOST,
    WRITER_FAILED,
    WRITER_SILENT,
    INCOMPLETE
  }

  /** In the order of rust/jni/src/driver.rs. */
  enum Writer {
    UNASKED,
    DONE,
    FAILED,
    SILENT,
    GONE
  }

  private static final int UNKNOWN = -1;

  final FileId file;
  final long end;
  Writer writer = Writer.UNASKED;
  String said = "";
  Throwable cause;
  private long stored = UNKNOWN;
  private boolean gathered;
  private GatheredCopies copies; // null once they were used

  FileFacts(FileId file, long end) {
    this.file = file;
    this.end = end;
  }

  Step next(boolean isLost) {
    int copied = !gathered ? UNKNOWN : copies != null && copies.reach(end) ? 1 : 0;
    return Step.values()[Native.nextStep(end, isLost, writer.ordinal(), stored, copied)];
  }

  void answered(Writer answer, String text, Throwable failure) {
    writer = answer;
    said = text;
    cause = failure;
  }

  void look(SegmentFolder where) {
    stored = Native.lookAtFile(where.name, where.files(), file.term(), file.number());
  }

  void gather(SegmentFolder where) {
    copies = GatheredCopies.of(where.name, file);
    gathered = true;
  }

  /**
   * Makes the file from copies. Another look then finds it, or the file of a writer that lives.
   * Returns facts about it, if it was made.
   */
  byte[] complete(SegmentFolder where) {
    byte[] made =
        Native.createFromCopies(
            where.name, where.files(), file.term(), file.number(), copies.bytes());
    copies = null;
    look(where);
    return made;
  }

  /** For people. */
  String found() {
    return String.format("%s has %d bytes, the batch refers to %d", file, Math.max(0, stored), end);
  }
}
