package io.holdfast.spark;

import java.io.Serializable;
import org.apache.spark.util.SerializableConfiguration;

/**
 * From an executor to the driver: a manager incarnation wants a term. Answered with a new one, or with
 * {@link #held} as long as no other application has written to the folder since that was given.
 */
final class TermRequest implements Serializable {
  private static final long serialVersionUID = 2L;

  final String dir;
  /** How to reach the folder, where it is not local. */
  final SerializableConfiguration conf;

  /** Term of the manager that there is; 0 without one. */
  final long held;

  final String executorId;
  /** The way back to the executor. */
  final ExecutorLink executor;

  TermRequest(StateFolder folder, long held, String executorId, ExecutorLink executor) {
    this.held = held;
    dir = folder.name;
    conf = folder.isLocal() ? null : new SerializableConfiguration(folder.conf);
    this.executorId = executorId;
    this.executor = executor;
  }

  StateFolder folder() {
    return StateFolder.named(dir, conf == null ? null : conf.value());
  }
}
