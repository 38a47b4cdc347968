package io.holdfast.spark.rpc;

import io.holdfast.spark.DaemonThreads;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.function.Function;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import scala.PartialFunction;
import scala.PartialFunction$;
import scala.runtime.BoxedUnit;

/** Takes the driver's requests on an executor: the plugin's own channel goes only one way. */
public final class ExecutorEndpoint implements RpcEndpoint {
  private final RpcEnv env;
  private final Function<ExecutorRequest, ExecutorReply> handler;
  private final RpcEndpointRef ref;

  /** Syncs wait for storage. Threads of Spark's dispatcher must not wait. */
  private final ExecutorService workers =
      Executors.newCachedThreadPool(DaemonThreads.named("holdfast-sync"));

  /**
   * @param handler answers requests
   */
  public ExecutorEndpoint(String executorId, Function<ExecutorRequest, ExecutorReply> handler) {
    env = SparkEnv.get().rpcEnv();
    this.handler = handler;
    ref = env.setupEndpoint("Holdfast-" + executorId, this);
  }

  public ExecutorLink link() {
    return new ExecutorLink(ref);
  }

  public void close() {
    env.stop(ref);
    workers.shutdown();
  }

  @Override
  public RpcEnv rpcEnv() {
    return env;
  }

  @Override
  public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
    return PartialFunction$.MODULE$.fromFunction(
        message -> {
          workers.execute(() -> answer(message, context));
          return BoxedUnit.UNIT;
        });
  }

  private void answer(Object message, RpcCallContext context) {
    ExecutorReply reply;
    try {
      reply = handler.apply(MessageBytes.read((byte[]) message, ExecutorRequest.class));
    } catch (RuntimeException | Error e) {
      // A message without an answer would tell the driver that this executor is gone.
      reply = ExecutorReply.failed(e);
    }
    context.reply(MessageBytes.of(reply));
  }
}
