package io.holdfast.spark.minor;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.UnsupportedStateException;
import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.Properties;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The Spark that this jar was built for. Spark's state store interface changes with every minor. A
 * mismatch would appear as a missing method in the middle of a batch, so the start looks for it.
 */
public final class BuildInfo {
  private static final Logger LOG = LoggerFactory.getLogger(BuildInfo.class);

  private static final String RESOURCE = "/holdfast-build.properties";
  private static final String NATIVE_RESOURCE = "/holdfast-native.properties";

  private BuildInfo() {}

  /**
   * Refuses a Spark that this jar does not fit. Only warns of a newer minor than this release, if
   * it has all that the jar needs.
   *
   * @throws UnsupportedStateException if the jar is not for it
   */
  public static void requireSpark(String running) {
    requireOneRelease();
    String expected = property("spark.minor");
    List<String> minors = List.of(property("spark.minors").split(","));
    SparkVersion version = SparkVersion.of(running);
    String oldest = property("spark.oldest");
    if (version.isBefore(SparkVersion.of(oldest))) {
      throw new UnsupportedStateException(
          String.format(
              "Holdfast runs on Spark %s and newer, and the application runs Spark %s: the"
                  + " interface of state stores that Holdfast implements is not in older versions.",
              oldest, running));
    }
    if (version.name().equals(expected)) {
      return;
    }
    String newest = minors.get(minors.size() - 1);
    boolean unknown = !minors.contains(version.name()) && !version.isBefore(SparkVersion.of(newest));
    if (!unknown || !expected.equals(newest)) {
      throw new UnsupportedStateException(
          String.format(
              "This Holdfast jar is built for Spark %s, but the application runs Spark %s. Use the"
                  + " jars that 'holdfast jar --spark %s' prints, or run Spark %s.",
              expected, running, version.name(), expected));
    }
    requireComplete(running, newest);
  }

  /** The jars of the classes and of the native library must belong to one release. */
  private static void requireOneRelease() {
    String own = property("version");
    String library = properties(NATIVE_RESOURCE).getProperty("version", own);
    if (!library.equals(own)) {
      throw new UnsupportedStateException(
          String.format(
              "The jars of Holdfast are of two releases: the classes of %s and the native library"
                  + " of %s. Use both jars that 'holdfast jar' prints, and no others.",
              own, library));
    }
  }

  private static void requireComplete(String running, String newest) {
    List<String> missing = SparkProbe.missing(BuildInfo.class.getClassLoader());
    if (!missing.isEmpty()) {
      throw new UnsupportedStateException(
          String.format(
              "Holdfast %s knows Spark up to %s, and Spark %s does not have all that it needs. Use"
                  + " a newer Holdfast, or Spark %s. What does not fit: %s",
              property("version"), newest, running, newest, String.join("; ", missing)));
    }
    LOG.warn(
        "Holdfast {} was not tested on Spark {}, only on versions up to {}. The interface of state"
            + " stores was compared at this start and has all that Holdfast needs; how operators"
            + " use it was not tested.",
        property("version"),
        running,
        newest);
  }

  /** Empty without such a file: {@link io.holdfast.spark.Native} reports a missing jar. */
  private static Properties properties(String resource) {
    Properties properties = new Properties();
    try (InputStream in = BuildInfo.class.getResourceAsStream(resource)) {
      if (in != null) {
        properties.load(in);
      }
    } catch (IOException e) {
      throw new HoldfastException("Cannot read " + resource + " of the Holdfast jar", e);
    }
    return properties;
  }

  static String property(String name) {
    String value = properties(RESOURCE).getProperty(name);
    if (value == null) {
      throw new HoldfastException(
          "The Holdfast jar is incomplete: " + RESOURCE + " does not say " + name);
    }
    return value;
  }
}
