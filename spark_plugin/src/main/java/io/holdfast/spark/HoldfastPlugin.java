package io.holdfast.spark;

import io.holdfast.spark.driver.HoldfastDriver;
import io.holdfast.spark.executor.HoldfastExecutor;
import java.util.Optional;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Entry point for {@code spark.plugins}. The driver side hands out terms; the executor side owns
 * the managers that all state stores of the executor share.
 */
public final class HoldfastPlugin implements SparkPlugin {
  private static volatile HoldfastDriver driver;
  private static volatile HoldfastExecutor executor;

  @Override
  public DriverPlugin driverPlugin() {
    return new HoldfastDriver(HoldfastPlugin::started, HoldfastPlugin::stopped);
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new HoldfastExecutor(HoldfastPlugin::started, HoldfastPlugin::stopped);
  }

  private static void started(HoldfastDriver instance) {
    driver = instance;
  }

  private static void started(HoldfastExecutor instance) {
    executor = instance;
  }

  private static void stopped(HoldfastDriver instance) {
    if (driver == instance) {
      driver = null;
    }
  }

  private static void stopped(HoldfastExecutor instance) {
    if (executor == instance) {
      executor = null;
    }
  }

  /** The driver side of this JVM. */
  static HoldfastDriver driver() {
    return running(driver);
  }

  /** The driver side of this JVM, where there is one: queries without state need none. */
  static Optional<HoldfastDriver> startedDriver() {
    return Optional.ofNullable(driver);
  }

  /** The executor side of this JVM. */
  static HoldfastExecutor executor() {
    return running(executor);
  }

  private static <T> T running(T side) {
    if (side == null) {
      throw new HoldfastException(
          "The Holdfast plugin is not running in this application: spark.plugins must contain "
              + HoldfastConf.PLUGIN_CLASS
              + " when the application starts. Use holdfast.configure(builder) before the first"
              + " SparkSession is created, or the lines of 'holdfast conf' in"
              + " spark-defaults.conf.");
    }
    return side;
  }
}
