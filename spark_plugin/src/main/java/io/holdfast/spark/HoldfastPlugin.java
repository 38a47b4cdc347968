package io.holdfast.spark;

import io.holdfast.spark.driver.HoldfastDriver;
import io.holdfast.spark.executor.HoldfastExecutor;
import java.util.Optional;
import java.util.concurrent.atomic.AtomicReference;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Entry point for {@code spark.plugins}. The driver side gives terms; the executor side owns the
 * managers that all state stores of the executor share.
 */
public final class HoldfastPlugin implements SparkPlugin {
  private static final AtomicReference<HoldfastDriver> DRIVER = new AtomicReference<>();
  private static final AtomicReference<HoldfastExecutor> EXECUTOR = new AtomicReference<>();

  @Override
  public DriverPlugin driverPlugin() {
    return new HoldfastDriver(DRIVER::set, ended -> DRIVER.compareAndSet(ended, null));
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new HoldfastExecutor(EXECUTOR::set, ended -> EXECUTOR.compareAndSet(ended, null));
  }

  /** The driver side of this JVM. */
  static HoldfastDriver driver() {
    return running(DRIVER.get());
  }

  /** The driver side of this JVM, if there is one. Queries without state need none. */
  static Optional<HoldfastDriver> startedDriver() {
    return Optional.ofNullable(DRIVER.get());
  }

  /** The executor side of this JVM. */
  public static HoldfastExecutor executor() {
    return running(EXECUTOR.get());
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
