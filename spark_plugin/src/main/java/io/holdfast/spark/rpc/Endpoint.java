package io.holdfast.spark.rpc;

import java.io.Serializable;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.CompletionException;
import java.util.function.Function;
import org.apache.spark.SparkEnv;
import org.apache.spark.rpc.RpcCallContext;
import org.apache.spark.rpc.RpcEndpoint;
import org.apache.spark.rpc.RpcEndpointRef;
import org.apache.spark.rpc.RpcEnv;
import scala.PartialFunction;
import scala.PartialFunction$;
import scala.runtime.BoxedUnit;

/** Takes requests that may wait. The plugin's channel takes one at a time, to the driver. */
public final class Endpoint<Q, R extends Serializable> implements RpcEndpoint {
  public static final String DECISIONS = "HoldfastDecisions"; // on the driver

  private final RpcEnv env;
  private final Class<Q> kind;
  private final Function<Q, CompletableFuture<R>> handler;
  private final Function<Throwable, R> failed;
  private final RpcEndpointRef ref;

  /**
   * @param handler answers requests. It must not wait: threads of Spark's dispatcher call it.
   * @param failed the answer after an error
   */
  public Endpoint(
      String name,
      Class<Q> kind,
      Function<Q, CompletableFuture<R>> handler,
      Function<Throwable, R> failed) {
    env = SparkEnv.get().rpcEnv();
    this.kind = kind;
    this.handler = handler;
    this.failed = failed;
    ref = env.setupEndpoint(name, this);
  }

  public ExecutorLink link() {
    return new ExecutorLink(ref);
  }

  public void close() {
    env.stop(ref);
  }

  @Override
  public RpcEnv rpcEnv() {
    return env;
  }

  @Override
  public PartialFunction<Object, BoxedUnit> receiveAndReply(RpcCallContext context) {
    return PartialFunction$.MODULE$.fromFunction(
        message -> {
          // A message without an answer would tell the other side that this one is gone.
          answer(message)
              .exceptionally(failure -> failed.apply(cause(failure)))
              .thenAcceptAsync(reply -> context.reply(MessageBytes.of(reply)));
          return BoxedUnit.UNIT;
        });
  }

  private CompletableFuture<R> answer(Object message) {
    try {
      return handler.apply(MessageBytes.read((byte[]) message, kind));
    } catch (RuntimeException | Error e) {
      return CompletableFuture.failedFuture(e);
    }
  }

  private static Throwable cause(Throwable failure) {
    return failure instanceof CompletionException wrapped ? wrapped.getCause() : failure;
  }
}
