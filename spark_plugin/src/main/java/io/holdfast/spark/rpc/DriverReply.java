package io.holdfast.spark.rpc;

import java.io.Serializable;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.util.SerializableConfiguration;

/** The driver's answer to a {@link DriverRequest}; it travels as {@link MessageBytes}. */
public sealed interface DriverReply extends Serializable {
  record Done() implements DriverReply {}

  /** The driver has no room for the message now. */
  record Full() implements DriverReply {}

  record Refused(String why) implements DriverReply {}

  /** Names the pipeline's folder and its {@link DriverRequest.Run#number}. */
  record Welcome(String dir, long run) implements DriverReply {}

  record Term(long term) implements DriverReply {}

  /**
   * @param conf Hadoop's settings for the pipeline's folder and output
   * @param liveTerms older terms whose managers may still be at work
   * @param wasteful names of files of ended managers, a line each, to be written again
   */
  record PipelineTerm(
      long term, SerializableConfiguration conf, long[] liveTerms, String wasteful)
      implements DriverReply {}

  /**
   * @param parks whether the task parks its partition
   * @param waits groups of keys whose rows it parks otherwise
   * @param still whether they have the keys that waited before the batch
   * @param settles whether the task sends {@link DriverRequest.Settle} in the end
   * @param failure the last known failure of the partition's task
   * @param settings Hadoop's, with the run of the query
   */
  record Decision(
      boolean parks,
      List<Integer> waits,
      boolean still,
      boolean settles,
      String failure,
      SerializableConfiguration settings)
      implements DriverReply {
    public Configuration conf() {
      return settings.value();
    }
  }

  /**
   * @param named digests of rows that the task leaves out
   * @param searches whether it tries rows apart before it delivers any
   * @param rowsMax rows that it may find
   */
  record RowDecision(List<String> named, boolean searches, long rowsMax) implements DriverReply {}
}
