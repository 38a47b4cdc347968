package io.holdfast.spark.rpc;

import io.holdfast.spark.HoldfastException;
import java.util.concurrent.Callable;
import org.apache.spark.SparkEnv;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.util.RpcUtils;
import scala.reflect.ClassTag$;

/** An executor's way to the driver. */
public final class DriverLink {
  private final PluginContext context;
  private RpcEndpointRef endpoint;

  public DriverLink(PluginContext context) {
    this.context = context;
  }

  public String executorId() {
    return context.executorID();
  }

  /**
   * Asks the driver. {@code failure} is the rest of the message if it cannot be reached.
   *
   * @throws IllegalStateException with the driver's reason if it refuses
   */
  public DriverReply ask(DriverRequest request, String failure) {
    return reply(() -> context.ask(request), failure);
  }

  /** Like {@link #ask}, for a request that may wait. No other request waits for it. */
  public DriverReply await(DriverRequest request, String failure) {
    byte[] bytes = MessageBytes.of(request);
    return reply(() -> endpoint().askSync(bytes, ClassTag$.MODULE$.apply(byte[].class)), failure);
  }

  private synchronized RpcEndpointRef endpoint() {
    if (endpoint == null) {
      SparkEnv env = SparkEnv.get();
      endpoint = RpcUtils.makeDriverRef(Endpoint.DECISIONS, env.conf(), env.rpcEnv());
    }
    return endpoint;
  }

  private static DriverReply reply(Callable<Object> question, String failure) {
    byte[] answer;
    try {
      answer = (byte[]) question.call();
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
