package io.holdfast.spark;

import java.io.Serializable;

/**
 * What executors say to the driver about regional pipelines. Answers are classes of the JDK or of
 * Spark: an executor's messaging starts before it has the plugin's jar. A {@link String} refuses,
 * and says why.
 */
final class RegionalMessages {
  private RegionalMessages() {}

  /** Has room again later. */
  static final String FULL = "full";

  /** A worker introduced itself. Answered with the folder's name and {@link Run#number}. */
  record Hello(String pipeline, String folder) implements Serializable {}

  /** One opening of a pipeline: what an earlier one left must not be mixed with it. */
  record Run(String pipeline, long number) implements Serializable {}

  /** A manager wants a term. Answered with the term, and how to reach a folder that is not local. */
  record TermWanted(Run run, String executorId, ExecutorLink executor) implements Serializable {}

  /** A manager was closed: it appends no more. Answered with true. */
  record TermEnded(String dir, long term) implements Serializable {}

  /** Bytes of a worker. Answered with true, or {@link #FULL}. */
  record Sent(Run run, byte[] data) implements Serializable {}
}
