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
import scala.Function1;
import scala.PartialFunction;
import scala.runtime.AbstractPartialFunction;
import scala.runtime.BoxedUnit;

/** Where an executor takes the driver's requests: the plugin's own channel goes only one way. */
public final class ExecutorEndpoint implements RpcEndpoint {
  private final RpcEnv env;
  private final Function<ExecutorRequest, ExecutorReply> handler;
  private final RpcEndpointRef ref;

  /** Syncs wait for storage, which threads of Spark's dispatcher must not do. */
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
    return new AbstractPartialFunction<Object, BoxedUnit>() {
      @Override
      public boolean isDefinedAt(Object message) {
        return message instanceof byte[];
      }

      @Override
      @SuppressWarnings("unchecked") // B1 stands for BoxedUnit and what is above it
      public <A1, B1> B1 applyOrElse(A1 message, Function1<A1, B1> otherwise) {
        if (!isDefinedAt(message)) {
          return otherwise.apply(message);
        }
        workers.execute(() -> answer((byte[]) message, context));
        return (B1) BoxedUnit.UNIT;
      }
    };
  }

  private void answer(byte[] message, RpcCallContext context) {
    ExecutorReply reply;
    try {
      reply = handler.apply(MessageBytes.read(message, ExecutorRequest.class));
    } catch (RuntimeException | Error e) {
      // A failure of the message itself would tell the driver that this executor is gone.
      reply = ExecutorReply.failed(e);
    }
    context.reply(MessageBytes.of(reply));
  }
}
