package io.holdfast.spark.store;

import io.holdfast.spark.minor.SparkCalls;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors$;

/**
 * The phase of a store and the calls that it allows, by the rules of Spark's own providers. A store
 * for reading shares its session with the store that Spark makes of it for changes.
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

  /** Both are for errors. */
  Session(String name, long stamp) {
    this.name = name;
    this.stamp = stamp;
  }

  boolean hasCommitted() {
    return phase == Phase.COMMITTED;
  }

  /** Everything that reads or writes rows calls this method. */
  void requireOpen() {
    if (phase != Phase.UPDATING) {
      throw SparkCalls.sessionIsOver(stamp);
    }
  }

  void requireUncommitted() {
    require(phase == Phase.UPDATING, "commit");
  }

  void requireMetrics() {
    require(phase != Phase.UPDATING, "get metrics of");
  }

  void requireId() {
    require(phase == Phase.COMMITTED, "get the checkpoint info of");
  }

  private void require(boolean fits, String operation) {
    if (!fits) {
      throw StateStoreErrors$.MODULE$.stateStoreOperationOutOfOrder(
          "Cannot " + operation + " " + name + " after " + phase);
    }
  }

  void commit() {
    phase = Phase.COMMITTED;
  }

  /** Returns false if the session was aborted before. */
  boolean abort() {
    if (phase == Phase.ABORTED) {
      return false;
    }
    require(phase == Phase.UPDATING, "abort");
    phase = Phase.ABORTED;
    return true;
  }

  /** Returns false if the session was released before. */
  boolean release() {
    if (phase == Phase.RELEASED) {
      return false;
    }
    requireOpen();
    phase = Phase.RELEASED;
    return true;
  }
}
