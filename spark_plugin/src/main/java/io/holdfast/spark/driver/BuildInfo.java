package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.UnsupportedStateException;
import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.Properties;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What this jar was built for. Spark's state store interface changes with every minor, and a
 * mismatch would show as a missing method in the middle of a batch: so it is looked for at the start.
 */
public final class BuildInfo {
  private static final Logger LOG = LoggerFactory.getLogger(BuildInfo.class);

  private static final String RESOURCE = "/holdfast-build.properties";
  private static final String NATIVE_RESOURCE = "/holdfast-native.properties";

  private BuildInfo() {}

  /**
   * Refuses to run on a Spark that this jar does not fit. A minor that is newer than this release
   * is probed: where it has all that the jar needs, a warning is all.
   *
   * @param running version of Spark
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
          "Holdfast runs on Spark "
              + oldest
              + " and newer, and the application runs Spark "
              + running
              + ": the interface of state stores that Holdfast implements is not in older versions.");
    }
    if (version.name().equals(expected)) {
      return;
    }
    String newest = minors.get(minors.size() - 1);
    boolean unknown = !minors.contains(version.name()) && !version.isBefore(SparkVersion.of(newest));
    if (!unknown || !expected.equals(newest)) {
      throw new UnsupportedStateException(
          "This Holdfast jar is built for Spark "
              + expected
              + ", but the application runs Spark "
              + running
              + ". Use the jars that 'holdfast jar --spark "
              + version.name()
              + "' prints, or run Spark "
              + expected
              + ".");
    }
    requireComplete(running, newest);
  }

  /** The classes and the native library come in two jars: both must be of one release. */
  private static void requireOneRelease() {
    String own = property("version");
    String library = properties(NATIVE_RESOURCE).getProperty("version", own);
    if (!library.equals(own)) {
      throw new UnsupportedStateException(
          "The jars of Holdfast are of two releases: the classes of "
              + own
              + " and the native library of "
              + library
              + ". Use both jars that 'holdfast jar' prints, and no others.");
    }
  }

  private static void requireComplete(String running, String newest) {
    List<String> missing = SparkProbe.missing(BuildInfo.class.getClassLoader());
    if (!missing.isEmpty()) {
      throw new UnsupportedStateException(
          "Holdfast "
              + property("version")
              + " knows Spark up to "
              + newest
              + ", and Spark "
              + running
              + " does not have all that it needs. Use a newer Holdfast, or Spark "
              + newest
              + ". What does not fit: "
              + String.join("; ", missing));
    }
    LOG.warn(
        "Holdfast {} was not tested on Spark {}, only on versions up to {}. The interface of state"
            + " stores was compared at this start and has all that Holdfast needs; how operators"
            + " use it was not tested.",
        property("version"),
        running,
        newest);
  }

  /** Empty where there is no such file: {@link io.holdfast.spark.Native} tells of a missing jar. */
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
