package io.holdfast.spark;

import io.holdfast.spark.driver.HoldfastDriver;
import io.holdfast.spark.executor.HoldfastExecutor;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.SparkPlugin;

/**
 * Entry point for {@code spark.plugins}. The driver side gives terms; the executor side owns the
 * managers that all state stores of the executor share.
 */
public final class HoldfastPlugin implements SparkPlugin {
  @Override
  public DriverPlugin driverPlugin() {
    return new HoldfastDriver();
  }

  @Override
  public ExecutorPlugin executorPlugin() {
    return new HoldfastExecutor();
  }
}
