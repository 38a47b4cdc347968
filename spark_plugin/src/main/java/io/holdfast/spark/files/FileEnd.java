package io.holdfast.spark.files;

/**
 * How much of a physical file is referred to. The native side makes these (rust/jni/src/driver.rs).
 *
 * @param term of the manager that made the file
 * @param number its place among the files of that term
 * @param end offset behind the last segment that is referred to
 */
public record FileEnd(long term, long number, long end) {
  public FileId file() {
    return new FileId(term, number);
  }
}
