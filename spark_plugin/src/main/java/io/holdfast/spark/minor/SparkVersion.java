package io.holdfast.spark.minor;

import io.holdfast.spark.UnsupportedStateException;
import java.util.Comparator;
import java.util.regex.Matcher;
import java.util.regex.Pattern;

/** A version of Spark; {@code patch} is the largest integer if it is unknown. */
public record SparkVersion(int major, int minor, int patch) {
  private static final Pattern TEXT = Pattern.compile("(\\d{1,9})\\.(\\d{1,9})(?:\\.(\\d{1,9}))?.*");

  public static final Comparator<SparkVersion> BY_MINOR =
      Comparator.comparingInt(SparkVersion::major).thenComparingInt(SparkVersion::minor);

  private static final Comparator<SparkVersion> BY_PATCH =
      BY_MINOR.thenComparingInt(SparkVersion::patch);

  /**
   * Reads {@code 4.3.0}, {@code 4.3} and versions of vendors that begin so.
   *
   * @throws UnsupportedStateException if the text is no version
   */
  public static SparkVersion of(String text) {
    Matcher found = TEXT.matcher(text);
    if (!found.matches()) {
      throw new UnsupportedStateException("Spark calls its version " + text + ", which is none.");
    }
    int patch = found.group(3) == null ? Integer.MAX_VALUE : Integer.parseInt(found.group(3));
    return new SparkVersion(
        Integer.parseInt(found.group(1)), Integer.parseInt(found.group(2)), patch);
  }

  public static boolean isOne(String text) {
    return TEXT.matcher(text).matches();
  }

  boolean isBefore(SparkVersion other) {
    return BY_PATCH.compare(this, other) < 0;
  }

  public String name() {
    return major + "." + minor;
  }
}
