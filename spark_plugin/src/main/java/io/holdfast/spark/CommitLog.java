package io.holdfast.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
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

  /** A store's id, and the partition it belongs to as {@code operator/partition}. */
  static final class StoreId {
    final String partition;
    final String id;

    StoreId(String partition, String id) {
      this.partition = partition;
      this.id = id;
    }
  }

  static Path stateOf(Path entry) {
    return new Path(entry.getParent().getParent(), "state");
  }

  /** Makes the state that an entry refers to survive a machine crash. */
  static void makeDurable(Path path, List<StoreId> ids, Configuration conf) {
    if (!ids.isEmpty()) {
      String dir = StateFolder.of(stateOf(path).toString(), conf);
      String[] texts = ids.stream().map(store -> store.id).toArray(String[]::new);
      HoldfastPlugin.driver().durableFiles().makeDurable(dir, texts);
    }
  }

  /** Refuses an entry when another application has taken over the state it belongs to. */
  static void requireNewest(Path path, List<StoreId> ids, Configuration conf) {
    if (!ids.isEmpty()) {
      HoldfastPlugin.driver().requireNewest(StateFolder.of(stateOf(path).toString(), conf));
    }
  }

  /**
   * Holdfast's ids in an entry.
   *
   * @param entry the entry's bytes: a version line, then JSON with {@code stateUniqueIds}, a map
   *     from operator to partitions to ids of their stores
   */
  static List<StoreId> holdfastIds(byte[] entry) throws IOException {
    String text = new String(entry, StandardCharsets.UTF_8);
    List<StoreId> ids = new ArrayList<>();
    int json = text.indexOf('\n');
    if (json < 0 || text.substring(json).isBlank()) {
      return ids;
    }
    JsonNode operators = new ObjectMapper().readTree(text.substring(json)).path("stateUniqueIds");
    for (Map.Entry<String, JsonNode> operator : operators.properties()) {
      int partition = 0;
      for (JsonNode stores : operator.getValue()) {
        for (JsonNode id : stores) {
          if (id.asText().startsWith(ID_PREFIX)) {
            ids.add(new StoreId(operator.getKey() + "/" + partition, id.asText()));
          }
        }
        partition++;
      }
    }
    return ids;
  }
}
