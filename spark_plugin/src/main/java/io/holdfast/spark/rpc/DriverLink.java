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
   * @param failure the rest of the message if the driver cannot be reached
   * @throws IllegalStateException with the driver's reason if it refuses
   */
  public DriverReply ask(DriverRequest request, String failure) {
    byte[] answer;
    try {
      answer = (byte[]) context.ask(request);
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new HoldfastException("The driver " + failure, e);
    }
    DriverReply reply = MessageBytes.read(answer, DriverReply.class);
    if (reply instanceof DriverReply.Refused refused) {
      throw new IllegalStateException(refused.why());
    }
    return reply;
  }
}
