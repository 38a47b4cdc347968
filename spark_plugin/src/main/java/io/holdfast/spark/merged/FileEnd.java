package io.holdfast.spark.merged;

/**
 * The part of a physical file that is referred to. The native side makes these records
 * (rust/jni/src/driver.rs).
 *
 * @param term see {@link FileId}, as for {@code number}
 * @param end offset behind the last segment that is referred to
 */
public record FileEnd(long term, long number, long end) {
  public FileId file() {
    return new FileId(term, number);
  }
}
