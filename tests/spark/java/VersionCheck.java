package io.holdfast.spark.minor;

import io.holdfast.spark.UnsupportedStateException;

/** Prints the answer of the plugin's driver side to a version of Spark. */
public final class VersionCheck {
  private VersionCheck() {}

  public static void main(String[] arguments) {
    try {
      BuildInfo.requireSpark(arguments[0]);
      System.out.println("accepted");
    } catch (UnsupportedStateException e) {
      System.out.println("refused: " + e.getMessage());
    }
  }
}
