package io.holdfast.spark;

import org.apache.spark.api.plugin.PluginContext;

/** An executor's way to the driver. */
final class DriverLink {
  private final PluginContext context;

  DriverLink(PluginContext context) {
    this.context = context;
  }

  String executorId() {
    return context.executorID();
  }

  /**
   * Asks the driver.
   *
   * @param failure what the driver did not do, if it cannot be reached
   */
  Object ask(Object message, String failure) {
    try {
      return context.ask(message);
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new HoldfastException("The driver " + failure, e);
    }
  }
}
