package io.holdfast.spark.rpc;

import java.io.Serializable;

/**
 * An executor's answer to an {@link ExecutorRequest}.
 *
 * @param error why it failed; empty otherwise
 */
public record ExecutorReply(Outcome outcome, String error) implements Serializable {
  public enum Outcome {
    DONE,
    /** The manager is closed; the executor has reported files that it could not seal as lost. */
    CLOSED,
    /** After a failed sync, bytes may be gone. */
    FAILED
  }

  public static ExecutorReply done() {
    return new ExecutorReply(Outcome.DONE, "");
  }

  public static ExecutorReply closed() {
    return new ExecutorReply(Outcome.CLOSED, "");
  }

  public static ExecutorReply failed(Throwable cause) {
    return new ExecutorReply(Outcome.FAILED, cause.toString());
  }
}
