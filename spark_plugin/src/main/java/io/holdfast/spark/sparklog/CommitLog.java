package io.holdfast.spark.sparklog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.sparklog.SparkFile.Kind;
import io.holdfast.spark.storage.Storages;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Spark's commit log, {@code <checkpoint>/commits/N}: the atomic root of every checkpoint. */
public final class CommitLog {
  private static final String PREFIX = Native.idPrefix();

  /** In an entry, a map from operator to partitions to ids of their stores. */
  static final String IDS = "stateUniqueIds";

  private static final ObjectMapper JSON = new ObjectMapper();

  private CommitLog() {}

  /** The partition is {@code operator/partition}. */
  public record StoreId(String operator, String partition, String id) {
    /** The ids whose segments it needs: its own, or the ids of the stores that it is a view of. */
    private Stream<StoreId> needed() {
      if (!ViewId.is(id)) {
        return Stream.of(this);
      }
      return ViewId.parse(id).parents().entrySet().stream()
          .map(
              parent ->
                  new StoreId(operator, operator + "/" + parent.getKey(), parent.getValue()));
    }
  }

  /** The entry that made a version of the state in {@code <checkpoint>/state}. */
  public static Path entryOf(String stateLocation, long version) {
    Path commits = new Path(new Path(stateLocation).getParent(), "commits");
    return new Path(commits, Long.toString(version - 1));
  }

  /** The newest entry of a checkpoint; null without one. */
  public static Path newest(Path checkpoint, Configuration conf) throws IOException {
    Path log = new Path(checkpoint, "commits");
    long newest = newestBatch(log, conf);
    return newest < 0 ? null : new Path(log, Long.toString(newest));
  }

  /** The newest batch with an entry in a log, such as {@code <checkpoint>/offsets}, or -1. */
  public static long newestBatch(Path log, Configuration conf) throws IOException {
    return batches(log, conf).max().orElse(-1);
  }

  /** Fails if the log is past this new entry. Spark may have deleted an entry of the same batch. */
  public static void requireNext(SparkFile entry, Configuration conf) throws IOException {
    long newest = newestBatch(entry.path().getParent(), conf);
    if (newest > entry.number()) {
      throw new HoldfastException(
          String.format(
              "Another query took over this checkpoint: it committed batch %d of %s while this one"
                  + " was at batch %d. The batch was not committed and nothing is lost, but this"
                  + " query must be stopped: only one query may use a checkpoint.",
              newest, entry.checkpoint(), entry.number()));
    }
  }

  /** The batches with an entry in a log of a checkpoint, plans or commits. */
  public static LongStream batches(Path log, Configuration conf) throws IOException {
    return Storages.list(log.getFileSystem(conf), log)
        .map(status -> SparkFile.of(status.getPath()))
        .filter(file -> file.kind() == Kind.PLAN || file.kind() == Kind.COMMIT)
        .mapToLong(SparkFile::number);
  }

  /** Spark's own providers have UUIDs. */
  public static boolean isHoldfasts(String id) {
    return id.startsWith(PREFIX);
  }

  public static List<StoreId> needed(List<StoreId> ids) {
    return ids.stream().flatMap(StoreId::needed).distinct().toList();
  }

  /** These ids without operators and partitions. */
  public static String[] neededIds(List<StoreId> ids) {
    return needed(ids).stream().map(StoreId::id).toArray(String[]::new);
  }

  public static List<StoreId> read(Path entry, Configuration conf) {
    try (InputStream in = entry.getFileSystem(conf).open(entry)) {
      return holdfastIds(in.readAllBytes());
    } catch (FileNotFoundException e) {
      throw new IllegalArgumentException(
          String.format(
              "Batch %s has no entry in the commit log any more (%s); choose a later start, or a"
                  + " larger spark.sql.streaming.minBatchesToRetain.",
              entry.getName(), entry),
          e);
    } catch (IOException e) {
      throw new HoldfastException("Cannot read " + entry, e);
    }
  }

  public static List<StoreId> holdfastIds(byte[] entry) throws IOException {
    return holdfastIds(content(new String(entry, StandardCharsets.UTF_8)).path(IDS));
  }

  static List<StoreId> holdfastIds(JsonNode operators) {
    List<StoreId> ids = new ArrayList<>();
    for (Map.Entry<String, JsonNode> operator : operators.properties()) {
      int partition = 0;
      for (JsonNode stores : operator.getValue()) {
        for (JsonNode id : stores) {
          if (isHoldfasts(id.asText())) {
            ids.add(new StoreId(operator.getKey(), operator.getKey() + "/" + partition, id.asText()));
          }
        }
        partition++;
      }
    }
    return ids;
  }

  /** The content of an entry after its line with a version; empty without any. */
  static ObjectNode content(String entry) throws IOException {
    int json = entry.indexOf('\n');
    if (json < 0 || entry.substring(json).isBlank()) {
      return JSON.createObjectNode();
    }
    return JSON.readValue(entry.substring(json), ObjectNode.class);
  }
}
