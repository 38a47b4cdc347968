package io.holdfast.spark.files;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.HoldfastException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Spark's commit log, {@code <checkpoint>/commits/N}: the atomic root of every checkpoint. */
public final class CommitLog {
  /** Of ids of this version and of older ones; see rust/core/FORMAT.md. */
  private static final List<String> ID_PREFIXES = List.of("hf3-", "hf2-", "hf1-");

  private CommitLog() {}

  public static boolean isEntry(Path path) {
    return isEntryOf("commits", path);
  }

  /** Whether a path is that of an entry of Spark's log of offsets. */
  public static boolean isPlan(Path path) {
    return isEntryOf("offsets", path);
  }

  private static boolean isEntryOf(String log, Path path) {
    Path parent = path.getParent();
    return parent != null
        && parent.getName().equals(log)
        && !path.getName().isEmpty()
        && path.getName().chars().allMatch(Character::isDigit);
  }

  /** A store's id, and where it belongs. */
  public static final class StoreId {
    public final String operator;
    final int partition;
    public final String id;

    StoreId(String operator, int partition, String id) {
      this.operator = operator;
      this.partition = partition;
      this.id = id;
    }

    /** {@code operator/partition}. */
    public String partition() {
      return operator + "/" + partition;
    }
  }

  public static Path stateOf(Path entry) {
    return new Path(entry.getParent().getParent(), "state");
  }

  /**
   * The entry that made a version.
   *
   * @param stateLocation {@code <checkpoint>/state}
   */
  public static Path entryOf(String stateLocation, long version) {
    Path commits = new Path(new Path(stateLocation).getParent(), "commits");
    return new Path(commits, Long.toString(version - 1));
  }

  /** Holdfast's ids in an entry that a reader asked for. */
  public static List<StoreId> read(Path entry, Configuration conf) {
    try (InputStream in = entry.getFileSystem(conf).open(entry)) {
      return holdfastIds(in.readAllBytes());
    } catch (FileNotFoundException e) {
      throw new IllegalArgumentException(
          "Batch "
              + entry.getName()
              + " has no entry in the commit log any more ("
              + entry
              + "); choose a later start, or a larger spark.sql.streaming.minBatchesToRetain.",
          e);
    } catch (IOException e) {
      throw new HoldfastException("Cannot read " + entry, e);
    }
  }

  /**
   * Holdfast's ids in an entry.
   *
   * @param entry the entry's bytes: a version line, then JSON with {@code stateUniqueIds}, a map
   *     from operator to partitions to ids of their stores
   */
  public static List<StoreId> holdfastIds(byte[] entry) throws IOException {
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
          if (ID_PREFIXES.stream().anyMatch(id.asText()::startsWith)) {
            ids.add(new StoreId(operator.getKey(), partition, id.asText()));
          }
        }
        partition++;
      }
    }
    return ids;
  }
}
