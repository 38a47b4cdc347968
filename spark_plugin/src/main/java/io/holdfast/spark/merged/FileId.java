package io.holdfast.spark.merged;

import java.io.Serializable;

/** A physical file: the term of the manager that made it, and its number in this term. */
public record FileId(long term, long number) implements Serializable {
  /** For people; rust/core/src/ids.rs defines the file's name. */
  @Override
  public String toString() {
    return String.format("%016x-%08x.hf", term, number);
  }
}
