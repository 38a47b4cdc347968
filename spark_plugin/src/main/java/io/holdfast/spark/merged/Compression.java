package io.holdfast.spark.merged;

import java.util.Arrays;
import java.util.Optional;

/** How segments are compressed. */
public enum Compression {
  NONE(0),
  LZ4(1);
  public final int code; // rust/jni/src/folders.rs reads it

  Compression(int code) {
    this.code = code;
  }

  /** In upper or lower case. */
  public static Optional<Compression> named(String name) {
    return Arrays.stream(values()).filter(one -> one.name().equalsIgnoreCase(name)).findFirst();
  }
}
