package io.holdfast.spark;

import java.io.Serializable;
import org.apache.spark.util.SerializableConfiguration;

/** From an executor to the driver: a new manager incarnation wants a term. */
final class TermRequest implements Serializable {
  private static final long serialVersionUID = 1L;

  final String dir;
  /** How to reach the folder, where it is not local. */
  final SerializableConfiguration conf;

  final String executorId;
  /** The way back to the executor. */
  final ExecutorLink executor;

  TermRequest(StateFolder folder, String executorId, ExecutorLink executor) {
    dir = folder.name;
    conf = folder.isLocal() ? null : new SerializableConfiguration(folder.conf);
    this.executorId = executorId;
    this.executor = executor;
  }

  StateFolder folder() {
    return StateFolder.named(dir, conf == null ? null : conf.value());
  }
}
