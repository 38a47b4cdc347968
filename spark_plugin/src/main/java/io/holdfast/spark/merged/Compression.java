package io.holdfast.spark.merged;

import java.util.Arrays;
import java.util.Optional;

/** How segments are compressed. */
public enum Compression {
  NONE(0),
  LZ4(1);

  /** The code in native calls; rust/jni/src/folders.rs reads it. */
  public final int code;

  Compression(int code) {
    this.code = code;
  }

  /** The compression of a name, in upper or lower case. */
  public static Optional<Compression> named(String name) {
    return Arrays.stream(values()).filter(one -> one.name().equalsIgnoreCase(name)).findFirst();
  }
}
