package io.holdfast.spark;

import java.io.Serializable;
import java.util.concurrent.CompletableFuture;
import org.apache.spark.rpc.RpcEndpointRef;
import scala.jdk.javaapi.FutureConverters;
import scala.reflect.ClassTag$;

/**
 * The driver's way to an executor. It travels in a message of that executor, so that requests come
 * back over the same connection: executors accept none.
 */
final class ExecutorLink implements Serializable {
  private static final long serialVersionUID = 1L;

  private final RpcEndpointRef endpoint;

  ExecutorLink(RpcEndpointRef endpoint) {
    this.endpoint = endpoint;
  }

  /** Fails with a TimeoutException after {@code spark.rpc.askTimeout}. */
  CompletableFuture<SyncReply> ask(SyncRequest request) {
    return ask(request.toWire()).thenApply(SyncReply::fromWire);
  }

  /** Best effort: a notice that is lost is repeated by the next. */
  void tell(WasteNotice notice) {
    ask(notice.toWire());
  }

  /** Any request, as text. */
  CompletableFuture<String[]> ask(String[] wire) {
    return FutureConverters.asJava(
            endpoint.<String[]>ask(wire, ClassTag$.MODULE$.apply(String[].class)))
        .toCompletableFuture();
  }
}
