package io.holdfast.spark.rpc;

import io.holdfast.spark.merged.FileId;
import io.holdfast.spark.merged.SegmentFolder;
import java.io.Serializable;
import java.util.List;
import java.util.UUID;
import org.apache.spark.TaskContext;
import org.apache.spark.util.SerializableConfiguration;

/** A message of an executor to the driver; answered with a {@link DriverReply}. */
public sealed interface DriverRequest extends Serializable {
  /**
   * A manager of state stores wants a term. The answer is a new term, or {@code held} if no other
   * application has written to the folder since.
   *
   * @param conf Hadoop's settings for the folder; null for a local one
   * @param held term of the open manager; 0 without one
   */
  record StoreTerm(
      String dir,
      SerializableConfiguration conf,
      long held,
      String executorId,
      ExecutorLink executor)
      implements DriverRequest {
    public static StoreTerm of(
        SegmentFolder folder, long held, String executorId, ExecutorLink executor) {
      SerializableConfiguration conf =
          folder.isLocal() ? null : new SerializableConfiguration(folder.conf);
      return new StoreTerm(folder.name, conf, held, executorId, executor);
    }

    public SegmentFolder folder() {
      return SegmentFolder.named(dir, conf == null ? null : conf.value());
    }
  }

  /** Physical files could not be made durable. */
  record LostFiles(String dir, String executorId, List<FileId> files) implements DriverRequest {}

  /**
   * A task of a guarded stage asks whether it parks a partition, or which rows it leaves out. The
   * answer is a decision.
   *
   * @param id Spark's number of the attempt
   */
  record Decide(GuardKey guard, Part part, long id) implements DriverRequest {}

  /**
   * An attempt is through with a partition as decided. It continues when that is durable.
   *
   * @param found bad rows that it left out, in JSON as the core reads it; null for an operator
   * @param read rows of a source that it read
   */
  record Settle(GuardKey guard, Part part, String found, long read) implements DriverRequest {}

  /** Names a guarded stage in one batch of one run: an operator, or below 0 a source. */
  record GuardKey(UUID run, long batch, long operator) implements Serializable {}

  /**
   * Names an attempt of a task as Spark's scheduler does.
   *
   * @param task the partition of the stage's last RDD
   * @param number counts from 0 in each attempt of the stage
   */
  record Attempt(int stage, int stageAttempt, int task, int number) implements Serializable {
    public static Attempt of(TaskContext task) {
      return new Attempt(
          task.stageId(), task.stageAttemptNumber(), task.partitionId(), task.attemptNumber());
    }

    /** Returns true for any attempt but the first one. */
    public boolean isAgain() {
      return number > 0 || stageAttempt > 0;
    }
  }

  /** A partition of an operator or a source in an attempt, which may compute several. */
  record Part(Attempt attempt, int partition) implements Serializable {}

  /** One run of a regional pipeline. Messages of an earlier run must not be mixed with it. */
  record Run(String pipeline, long number) implements Serializable {}

  /** A worker of a regional pipeline introduced itself. The answer is a welcome. */
  record Hello(String pipeline, String folder) implements DriverRequest {}

  /** A manager of a regional pipeline wants a term. */
  record PipelineTerm(Run run, String executorId, ExecutorLink executor) implements DriverRequest {}

  /** A manager of a regional pipeline was closed: it appends no more. */
  record TermEnded(String dir, long term) implements DriverRequest {}

  record Sent(Run run, byte[] data) implements DriverRequest {}
}
