package io.holdfast.spark.merged;

import java.io.Serializable;

/** A physical file: the term of the manager that made it, and its place among those of the term. */
public record FileId(long term, long number) implements Serializable {
  /** The file's name, for people; rust/core/src/ids.rs defines it. */
  @Override
  public String toString() {
    return String.format("%016x-%08x.hf", term, number);
  }
}
