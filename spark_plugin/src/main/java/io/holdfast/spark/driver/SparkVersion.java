package io.holdfast.spark.driver;

import io.holdfast.spark.UnsupportedStateException;
import java.util.Comparator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A minor of Spark, and the patch where it is known. */
record SparkVersion(int major, int minor, int patch) {
  private static final Pattern TEXT = Pattern.compile("(\\d{1,9})\\.(\\d{1,9})(?:\\.(\\d{1,9}))?.*");

  static final Comparator<SparkVersion> BY_MINOR =
      Comparator.comparingInt(SparkVersion::major).thenComparingInt(SparkVersion::minor);

  private static final Comparator<SparkVersion> BY_PATCH =
      BY_MINOR.thenComparingInt(SparkVersion::patch);

  /**
   * Reads {@code 4.3.0}, {@code 4.3} and what vendors make of them.
   *
   * @throws UnsupportedStateException if it is none of these
   */
  static SparkVersion of(String text) {
    Matcher found = TEXT.matcher(text);
    if (!found.matches()) {
      throw new UnsupportedStateException("Spark calls its version " + text + ", which is none.");
    }
    int patch = found.group(3) == null ? Integer.MAX_VALUE : Integer.parseInt(found.group(3));
    return new SparkVersion(
        Integer.parseInt(found.group(1)), Integer.parseInt(found.group(2)), patch);
  }

  static boolean isOne(String text) {
    return TEXT.matcher(text).matches();
  }

  boolean isBefore(SparkVersion other) {
    return BY_PATCH.compare(this, other) < 0;
  }

  /** The minor, {@code 4.3}. */
  String name() {
    return major + "." + minor;
  }
}
