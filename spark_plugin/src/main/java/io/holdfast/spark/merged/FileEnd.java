package io.holdfast.spark.merged;

/**
 * The part of a physical file that is referred to, up to the end of its last segment. The native
 * side makes these records (rust/jni/src/driver.rs).
 */
public record FileEnd(long term, long number, long end) {
  public FileId file() {
    return new FileId(term, number);
  }
}
