package io.holdfast.spark.rpc;

import java.io.Serializable;
import java.util.List;

/**
 * Answers an {@link ExecutorRequest}. Only failures have errors, and only listings stores.
 *
 * @param files facts about files that were finished, for {@code Native.learnFiles}
 */
public record ExecutorReply(Outcome outcome, String error, List<StoreSize> stores, byte[] files)
    implements Serializable {
  public enum Outcome {
    DONE,
    /** The manager is closed; the executor has reported files that it could not seal as lost. */
    CLOSED,
    /** After a failed sync, bytes may be gone. */
    FAILED
  }

  private static final byte[] NO_FILES = {};

  public static ExecutorReply done() {
    return done(NO_FILES);
  }

  public static ExecutorReply done(byte[] files) {
    return new ExecutorReply(Outcome.DONE, "", List.of(), files);
  }

  public static ExecutorReply stores(List<StoreSize> open) {
    return new ExecutorReply(Outcome.DONE, "", open, NO_FILES);
  }

  public static ExecutorReply closed() {
    return new ExecutorReply(Outcome.CLOSED, "", List.of(), NO_FILES);
  }

  public static ExecutorReply failed(Throwable cause) {
    return new ExecutorReply(Outcome.FAILED, cause.toString(), List.of(), NO_FILES);
  }
}
