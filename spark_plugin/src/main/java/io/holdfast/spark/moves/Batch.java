package io.holdfast.spark.moves;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.holdfast.spark.DamagedStateException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
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
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final String IDS = "stateUniqueIds";

  static final String PARTITIONS_KEY = "spark.sql.shuffle.partitions";

  /** Lines of the offset log: version, facts about the whole batch, then one for each source. */
  private static final int FACTS = 1;

  static Batch read(Path checkpoint, long number, Configuration conf) throws IOException {
    return new Batch(
        number,
        text(entry(checkpoint, "offsets", number), conf),
        text(entry(checkpoint, "commits", number), conf));
  }

  static Path entry(Path checkpoint, String log, long number) {
    return new Path(new Path(checkpoint, log), Long.toString(number));
  }

  static String text(Path file, Configuration conf) throws IOException {
    try (InputStream in = file.getFileSystem(conf).open(file)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  /** Its settings. */
  JsonNode conf() throws IOException {
    return facts(offsets.split("\n", -1)).path("conf");
  }

  /**
   * The number of partitions of its state, but for operators that have one always. Spark's
   * descriptions of operators may have an older number.
   */
  int partitions() throws IOException {
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
  JsonNode ids() throws IOException {
    return committed().path(IDS);
  }

  /** Returns the entry of the offset log of the batch behind it, which has other settings. */
  String planned(Map<String, String> changes) throws IOException {
    String[] lines = offsets.split("\n", -1);
    ObjectNode facts = facts(lines);
    ObjectNode conf = (ObjectNode) facts.get("conf");
    changes.forEach(conf::put);
    lines[FACTS] = JSON.writeValueAsString(facts);
    return String.join("\n", lines);
  }

  /** Returns true if two entries of the offset log say the same. */
  static boolean same(String one, String other) throws IOException {
    String[] lines = one.split("\n", -1);
    String[] others = other.split("\n", -1);
    boolean same = facts(lines).equals(facts(others));
    others[FACTS] = lines[FACTS];
    return same && Arrays.equals(lines, others);
  }

  /**
   * Returns the entry of the commit log of the batch behind it.
   *
   * @param format the checkpoint format
   * @param ids those of its state, by operator and partition
   */
  String committed(String format, Map<Long, List<List<String>>> ids) throws IOException {
    ObjectNode content = committed();
    content.remove(IDS);
    if (format.equals("2")) {
      content.set(IDS, JSON.valueToTree(ids));
    }
    String version = commit.substring(0, commit.indexOf('\n'));
    // Later versions have ids, or none.
    if (version.equals("v1") || version.equals("v2")) {
      version = "v" + format;
    }
    return version + "\n" + JSON.writeValueAsString(content);
  }

  private ObjectNode committed() throws IOException {
    return (ObjectNode) JSON.readTree(commit.substring(commit.indexOf('\n')));
  }

  private static ObjectNode facts(String[] lines) throws IOException {
    return (ObjectNode) JSON.readTree(lines[FACTS]);
  }
}
