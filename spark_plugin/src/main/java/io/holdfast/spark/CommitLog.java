package io.holdfast.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Spark's commit log, {@code <checkpoint>/commits/N}: the atomic root of every checkpoint. */
final class CommitLog {
  private static final String ID_PREFIX = "hf1-";

  private CommitLog() {}

  static boolean isEntry(Path path) {
    Path parent = path.getParent();
    return parent != null
        && parent.getName().equals("commits")
        && !path.getName().isEmpty()
        && path.getName().chars().allMatch(Character::isDigit);
  }

  /**
   * Makes the state that an entry refers to survive a machine crash.
   *
   * @param entry the entry's bytes: a version line, then JSON with {@code stateUniqueIds}, a map
   *     from operator to partitions to ids of their stores
   */
  static void makeDurable(Path path, byte[] entry, Configuration conf) throws IOException {
    List<String> ids = holdfastIds(entry);
    if (!ids.isEmpty()) {
      Path state = new Path(path.getParent().getParent(), "state");
      Native.syncReferenced(StateFolder.of(state.toString(), conf), ids.toArray(new String[0]));
    }
  }

  static List<String> holdfastIds(byte[] entry) throws IOException {
    String text = new String(entry, StandardCharsets.UTF_8);
    List<String> ids = new ArrayList<>();
    int json = text.indexOf('\n');
    if (json >= 0 && !text.substring(json).isBlank()) {
      JsonNode operators = new ObjectMapper().readTree(text.substring(json)).path("stateUniqueIds");
      for (JsonNode partitions : operators) {
        for (JsonNode stores : partitions) {
          for (JsonNode id : stores) {
            if (id.asText().startsWith(ID_PREFIX)) {
              ids.add(id.asText());
            }
          }
        }
      }
    }
    return ids;
  }
}
