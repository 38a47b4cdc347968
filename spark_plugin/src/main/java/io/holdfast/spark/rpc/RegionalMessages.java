package io.holdfast.spark.rpc;

import java.io.Serializable;
import org.apache.spark.util.SerializableConfiguration;

/**
 * What executors say to the driver about regional pipelines. A {@link String} as the answer refuses,
 * and says why. Answers that are classes of the plugin travel as {@link MessageBytes}.
 */
public final class RegionalMessages {
  private RegionalMessages() {}

  /** Has room again later. */
  public static final String FULL = "full";

  /** A worker introduced itself. Answered with a {@link Welcome}. */
  public record Hello(String pipeline, String folder) implements Serializable {}

  /**
   * @param dir name of the pipeline's folder
   * @param run see {@link Run#number}
   */
  public record Welcome(String dir, long run) implements Serializable {}

  /** One opening of a pipeline: what an earlier one left must not be mixed with it. */
  public record Run(String pipeline, long number) implements Serializable {}

  /** A manager wants a term. Answered with a {@link TermGiven}. */
  public record TermWanted(Run run, String executorId, ExecutorLink executor)
      implements Serializable {}

  /**
   * @param conf how to reach the folder, and where output goes
   */
  public record TermGiven(long term, SerializableConfiguration conf) implements Serializable {}

  /** A manager was closed: it appends no more. Answered with true. */
  public record TermEnded(String dir, long term) implements Serializable {}

  /** Bytes of a worker. Answered with true, or {@link #FULL}. */
  public record Sent(Run run, byte[] data) implements Serializable {}
}
