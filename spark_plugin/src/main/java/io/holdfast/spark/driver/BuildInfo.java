package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.UnsupportedStateException;
import java.io.IOException;
import java.io.InputStream;
import java.util.Properties;

/** What this jar was built for. */
final class BuildInfo {
  private static final String RESOURCE = "/holdfast-build.properties";

  private BuildInfo() {}

  /**
   * Refuses to run on another Spark minor than the jar's: Spark's state store interface changes
   * with every minor, and a mismatch would show as a missing method in the middle of a batch.
   */
  static void requireSparkMinor(String sparkVersion) {
    String expected = property("spark.minor");
    if (!sparkVersion.equals(expected) && !sparkVersion.startsWith(expected + ".")) {
      throw new UnsupportedStateException(
          "This Holdfast jar is built for Spark "
              + expected
              + ", but the application runs Spark "
              + sparkVersion
              + ". Use the holdfast release for Spark "
              + sparkVersion
              + ", or run Spark "
              + expected
              + ".");
    }
  }

  static String property(String name) {
    Properties properties = new Properties();
    try (InputStream in = BuildInfo.class.getResourceAsStream(RESOURCE)) {
      if (in != null) {
        properties.load(in);
      }
    } catch (IOException e) {
      throw new HoldfastException("Cannot read " + RESOURCE + " of the Holdfast jar", e);
    }
    String value = properties.getProperty(name);
    if (value == null) {
      throw new HoldfastException(
          "The Holdfast jar is incomplete: " + RESOURCE + " does not say " + name);
    }
    return value;
  }
}
