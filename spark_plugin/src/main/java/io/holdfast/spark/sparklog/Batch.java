package io.holdfast.spark.sparklog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.holdfast.spark.DamagedStateException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * A committed batch. The entries of a batch without input behind it follow from its own.
 *
 * @param offsets its entry of the offset log
 * @param commit its entry of the commit log
 */
public record Batch(long number, String offsets, String commit) {
  public static final String PARTITIONS_KEY = "spark.sql.shuffle.partitions";

  private static final ObjectMapper JSON = new ObjectMapper();

  public static Batch read(Path checkpoint, long number, Configuration conf) throws IOException {
    return new Batch(
        number,
        text(entry(checkpoint, "offsets", number), conf),
        text(entry(checkpoint, "commits", number), conf));
  }

  public static Path entry(Path checkpoint, String log, long number) {
    return new Path(new Path(checkpoint, log), Long.toString(number));
  }

  public static String text(Path file, Configuration conf) throws IOException {
    try (InputStream in = file.getFileSystem(conf).open(file)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  /** The plan of a batch, committed or not. */
  public static PlanEntry plan(Path checkpoint, long number, Configuration conf)
      throws IOException {
    return PlanEntry.of(text(entry(checkpoint, "offsets", number), conf));
  }

  /** Its settings. */
  public JsonNode conf() {
    return PlanEntry.of(offsets).conf();
  }

  /**
   * The number of partitions of its state, but for operators that have one always. Spark's
   * descriptions of operators may have an older number.
   */
  public int partitions() {
    int partitions = conf().path(PARTITIONS_KEY).asInt();
    if (partitions < 1) {
      throw new DamagedStateException(
          String.format(
              "The entry of batch %d in the offset log has no %s: put it back from a copy.",
              number, PARTITIONS_KEY));
    }
    return partitions;
  }

  /** By operator and partition, the ids of its stores; nothing if it has checkpoint format 1. */
  public JsonNode ids() throws IOException {
    return CommitLog.content(commit).path(CommitLog.IDS);
  }

  /** Returns the entry of the offset log of the batch behind it, which has other settings. */
  public String planned(Map<String, String> changes) {
    return PlanEntry.of(offsets).next(changes);
  }

  /**
   * Returns the entry of the commit log of the batch behind it.
   *
   * @param format the checkpoint format
   * @param ids those of its state, by operator and partition
   */
  public String committed(String format, Map<Long, List<List<String>>> ids) throws IOException {
    ObjectNode content = CommitLog.content(commit);
    content.remove(CommitLog.IDS);
    if (format.equals("2")) {
      content.set(CommitLog.IDS, JSON.valueToTree(ids));
    }
    String version = commit.substring(0, commit.indexOf('\n'));
    // Later versions have ids, or none.
    if (version.equals("v1") || version.equals("v2")) {
      version = "v" + format;
    }
    return version + "\n" + JSON.writeValueAsString(content);
  }
}
