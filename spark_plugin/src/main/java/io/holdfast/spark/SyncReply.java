package io.holdfast.spark;

/** An executor's answer to a {@link SyncRequest}; travels as text like that. */
final class SyncReply {
  enum Outcome {
    /** The files are durable as far as the executor wrote them. */
    DURABLE,
    /** The executor has no such manager any more; what it could not seal it reported as lost. */
    CLOSED,
    /** Bytes may be gone. */
    FAILED
  }

  final Outcome outcome;
  /** Why it failed; empty otherwise. */
  final String error;

  private SyncReply(Outcome outcome, String error) {
    this.outcome = outcome;
    this.error = error;
  }

  static SyncReply durable() {
    return new SyncReply(Outcome.DURABLE, "");
  }

  static SyncReply closed() {
    return new SyncReply(Outcome.CLOSED, "");
  }

  static SyncReply failed(Throwable cause) {
    return new SyncReply(Outcome.FAILED, cause.toString());
  }

  String[] toWire() {
    return new String[] {outcome.name(), error};
  }

  static SyncReply fromWire(String[] wire) {
    return new SyncReply(Outcome.valueOf(wire[0]), wire[1]);
  }
}
