package io.holdfast.spark.rpc;

import io.holdfast.spark.files.SegmentFolder;
import java.io.Serializable;
import org.apache.spark.util.SerializableConfiguration;

/**
 * From an executor to the driver: a manager incarnation wants a term. Answered with a new one, or with
 * {@code held} as long as no other application has written to the folder since that was given.
 *
 * @param conf how to reach the folder; null for a local one
 * @param held term of the manager that there is; 0 without one
 * @param executor the way back to the executor
 */
public record TermRequest(
    String dir,
    SerializableConfiguration conf,
    long held,
    String executorId,
    ExecutorLink executor)
    implements Serializable {
  public static TermRequest of(
      SegmentFolder folder, long held, String executorId, ExecutorLink executor) {
    SerializableConfiguration conf =
        folder.isLocal() ? null : new SerializableConfiguration(folder.conf);
    return new TermRequest(folder.name, conf, held, executorId, executor);
  }

  public SegmentFolder folder() {
    return SegmentFolder.named(dir, conf == null ? null : conf.value());
  }
}
