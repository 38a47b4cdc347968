package io.holdfast.spark.merged;

/** A file up to its last segment in use. The native side makes it (rust/jni/src/driver.rs). */
public record FileEnd(long term, long number, long end) {
  public FileId file() {
    return new FileId(term, number);
  }
}
