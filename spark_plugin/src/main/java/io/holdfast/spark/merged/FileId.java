package io.holdfast.spark.merged;

import java.io.Serializable;

/**
 * A physical file.
 *
 * @param term of the manager that made it
 * @param number its place among the files of that term
 */
public record FileId(long term, long number) implements Serializable {
  /** The file's name, for people; rust/core/src/ids.rs defines it. */
  @Override
  public String toString() {
    return String.format("%016x-%08x.hf", term, number);
  }
}
