package io.holdfast.spark.sparklog;

import io.holdfast.spark.HoldfastConf;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * The end of Spark's logs of a query: the newest planned batch, and the newest committed one.
 *
 * @param checkpoint its path, with a scheme
 * @param hasState whether there is a folder with state
 * @param planned the newest planned batch; -1 without one
 * @param plan its entry; null without one
 * @param newest the newest committed batch; null without one
 * @param before the batch before it, if a command published the newest one; else null
 */
public record QueryLog(
    String checkpoint, boolean hasState, long planned, PlanEntry plan, Batch newest, Batch before) {
  public static QueryLog read(String checkpoint, Configuration conf) throws IOException {
    Path root = new Path(checkpoint);
    long planned = CommitLog.newestBatch(new Path(root, "offsets"), conf);
    long committed = CommitLog.newestBatch(new Path(root, "commits"), conf);
    Batch newest = committed < 0 ? null : Batch.read(root, committed, conf);
    boolean moved = newest != null && !newest.setting(HoldfastConf.MOVE_KEY).isEmpty();
    return new QueryLog(
        checkpoint,
        root.getFileSystem(conf).exists(new Path(root, "state")),
        planned,
        planned < 0 ? null : Batch.plan(root, planned, conf),
        newest,
        moved ? Batch.read(root, committed - 1, conf) : null);
  }

  /** A checkpoint as people name it. */
  public static String shown(String checkpoint) {
    return checkpoint.replaceFirst("^file:", "");
  }

  public String shown() {
    return shown(checkpoint);
  }

  /** -1 without a committed batch. */
  public long committed() {
    return newest == null ? -1 : newest.number();
  }

  public static boolean isOf(String query, Path checkpoint, Configuration conf) throws IOException {
    String metadata = Batch.text(new Path(checkpoint, "metadata"), conf);
    return Batch.JSON.readTree(metadata).path("id").asText().equals(query);
  }
}
