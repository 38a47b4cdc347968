package io.holdfast.spark.rpc;

import java.io.Serializable;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.rpc.RpcEndpointRef;
import scala.jdk.javaapi.FutureConverters;
import scala.reflect.ClassTag$;

/**
 * The driver's way to an executor, part of a message from the executor: requests use its
 * connection, because executors accept no others.
 */
public final class ExecutorLink implements Serializable {
  private static final long serialVersionUID = 1L;

  private final RpcEndpointRef endpoint;

  ExecutorLink(RpcEndpointRef endpoint) {
    this.endpoint = endpoint;
  }

  /** Fails with a TimeoutException after {@code spark.rpc.askTimeout}. */
  public CompletableFuture<ExecutorReply> ask(ExecutorRequest request) {
    byte[] bytes = MessageBytes.of(request);
    return FutureConverters.asJava(
            endpoint.<byte[]>ask(bytes, ClassTag$.MODULE$.apply(byte[].class)))
        .toCompletableFuture()
        .thenApply(reply -> MessageBytes.read(reply, ExecutorReply.class));
  }
}
