package io.holdfast.spark.store;

/**
 * Where a store stands that was handed out, and what may be called then: Spark's rules, as those of
 * its own providers. A store for reading and the one for changing that it becomes share a session.
 */
final class Session {
  private enum Phase {
    UPDATING,
    COMMITTED,
    ABORTED,
    RELEASED
  }

  private final String name;
  private final long stamp;
  private Phase phase = Phase.UPDATING;

  /**
   * @param name of the version, for errors
   * @param stamp number of the session
   */
  Session(String name, long stamp) {
    this.name = name;
    this.stamp = stamp;
  }

  boolean isOpen() {
    return phase == Phase.UPDATING;
  }

  boolean hasCommitted() {
    return phase == Phase.COMMITTED;
  }

  /** For everything that reads or writes rows. */
  void requireOpen() {
    if (phase != Phase.UPDATING) {
      throw SparkErrors.invalidStamp(stamp);
    }
  }

  void requireUncommitted() {
    if (phase != Phase.UPDATING) {
      throw outOfOrder("commit");
    }
  }

  void commit() {
    phase = Phase.COMMITTED;
  }

  /** False when it was aborted before: doing it again changes nothing. */
  boolean abort() {
    if (phase == Phase.ABORTED) {
      return false;
    }
    if (phase != Phase.UPDATING) {
      throw outOfOrder("abort");
    }
    phase = Phase.ABORTED;
    return true;
  }

  /** False when it was released before. */
  boolean release() {
    if (phase == Phase.RELEASED) {
      return false;
    }
    requireOpen();
    phase = Phase.RELEASED;
    return true;
  }

  void requireMetrics() {
    if (phase == Phase.UPDATING) {
      throw outOfOrder("get metrics of");
    }
  }

  void requireId() {
    if (phase != Phase.COMMITTED) {
      throw outOfOrder("get the checkpoint info of");
    }
  }

  private RuntimeException outOfOrder(String operation) {
    return SparkErrors.outOfOrder("Cannot " + operation + " " + name + " after " + phase);
  }
}
