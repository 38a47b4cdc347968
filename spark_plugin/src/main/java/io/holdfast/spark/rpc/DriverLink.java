package io.holdfast.spark.rpc;

import io.holdfast.spark.HoldfastException;
import org.apache.spark.api.plugin.PluginContext;

/** An executor's way to the driver. */
public final class DriverLink {
  private final PluginContext context;

  public DriverLink(PluginContext context) {
    this.context = context;
  }

  public String executorId() {
    return context.executorID();
  }

  /**
   * Asks the driver.
   *
   * @param failure what the driver did not do, if it cannot be reached
   */
  public Object ask(Object message, String failure) {
    try {
      return context.ask(message);
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new HoldfastException("The driver " + failure, e);
    }
  }
}
