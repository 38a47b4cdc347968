package io.holdfast.spark;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
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

  /** A store's id, and where it belongs. */
  static final class StoreId {
    final String operator;
    final int partition;
    final String id;

    StoreId(String operator, int partition, String id) {
      this.operator = operator;
      this.partition = partition;
      this.id = id;
    }

    /** {@code operator/partition}. */
    String partition() {
      return operator + "/" + partition;
    }
  }

  static Path stateOf(Path entry) {
    return new Path(entry.getParent().getParent(), "state");
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
            ids.add(new StoreId(operator.getKey(), partition, id.asText()));
          }
        }
        partition++;
      }
    }
    return ids;
  }
}
