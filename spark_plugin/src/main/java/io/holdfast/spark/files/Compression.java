package io.holdfast.spark.files;

import java.util.Arrays;
import java.util.Optional;

/** How segments are compressed. */
public enum Compression {
  NONE(0),
  LZ4(1);

  /** As native calls take it; the native side reads it in rust/jni/src/folders.rs. */
  public final int code;

  Compression(int code) {
    this.code = code;
  }

  /** The compression that a setting names, in letters of either case. */
  public static Optional<Compression> named(String name) {
    return Arrays.stream(values()).filter(one -> one.name().equalsIgnoreCase(name)).findFirst();
  }
}
