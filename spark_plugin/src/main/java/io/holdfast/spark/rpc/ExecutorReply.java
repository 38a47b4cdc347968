package io.holdfast.spark.rpc;

import java.io.Serializable;
import java.util.List;

/** Answers an {@link ExecutorRequest}. Only failures have errors, and only listings stores. */
public record ExecutorReply(Outcome outcome, String error, List<StoreSize> stores)
    implements Serializable {
  public enum Outcome {
    DONE,
    /** The manager is closed; the executor has reported files that it could not seal as lost. */
    CLOSED,
    /** After a failed sync, bytes may be gone. */
    FAILED
  }

  public static ExecutorReply done() {
    return new ExecutorReply(Outcome.DONE, "", List.of());
  }

  public static ExecutorReply stores(List<StoreSize> open) {
    return new ExecutorReply(Outcome.DONE, "", open);
  }

  public static ExecutorReply closed() {
    return new ExecutorReply(Outcome.CLOSED, "", List.of());
  }

  public static ExecutorReply failed(Throwable cause) {
    return new ExecutorReply(Outcome.FAILED, cause.toString(), List.of());
  }
}
