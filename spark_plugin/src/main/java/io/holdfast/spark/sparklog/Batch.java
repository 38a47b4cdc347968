package io.holdfast.spark.sparklog;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.holdfast.spark.DamagedStateException;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.Native;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumException;
import org.apache.hadoop.fs.Path;

/**
 * A committed batch, with its entries of the offset log and the commit log. The entries of a next
 * batch without input follow from these.
 */
public record Batch(long number, String offsets, String commit) {
  public static final String PARTITIONS_KEY = "spark.sql.shuffle.partitions";

  static final ObjectMapper JSON = new ObjectMapper();

  /** Throws {@link DamagedStateException} if an entry is damaged. */
  public static Batch read(Path checkpoint, long number, Configuration conf) throws IOException {
    Path plan = entry(checkpoint, "offsets", number);
    Path commit = entry(checkpoint, "commits", number);
    Batch batch = new Batch(number, checked(plan, conf), checked(commit, conf));
    if (!PlanEntry.of(batch.offsets).isWhole()) {
      throw damaged(plan);
    }
    try {
      CommitLog.content(batch.commit);
    } catch (IOException e) {
      throw damaged(commit);
    }
    return batch;
  }

  private static String checked(Path entry, Configuration conf) throws IOException {
    try {
      return text(entry, conf);
    } catch (ChecksumException e) {
      throw damaged(entry);
    }
  }

  private static DamagedStateException damaged(Path entry) {
    return new DamagedStateException(entry + " is damaged: put it back from a copy");
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

  public JsonNode conf() {
    return PlanEntry.of(offsets).conf();
  }

  /** Empty if there is no such setting. */
  public String setting(String key) {
    return conf().path(key).asText();
  }

  /** The class that has the state; empty if a very old Spark noted none. */
  public String provider() {
    return setting(HoldfastConf.PROVIDER_KEY);
  }

  /** The checkpoint format: 2 has ids of the state. */
  public String format() {
    return ids().isObject() ? "2" : "1";
  }

  /** Returns true if its state has pending rows. */
  public boolean isParked() {
    return CommitLog.needed(stores()).stream()
        .anyMatch(store -> Native.pendingVersions(store.id()).length > 0);
  }

  /** Returns true if rows are still in stores of an older number of partitions. */
  public boolean hasViews() {
    return stores().stream().anyMatch(store -> ViewId.is(store.id()));
  }

  private List<CommitLog.StoreId> stores() {
    return CommitLog.holdfastIds(ids());
  }

  /**
   * The number of partitions, except of operators that always have one. Spark's descriptions of
   * operators may have an older number.
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

  /** By operator and partition, the ids of its stores; nothing in checkpoint format 1. */
  public JsonNode ids() {
    return content().path(CommitLog.IDS);
  }

  private ObjectNode content() {
    try {
      return CommitLog.content(commit);
    } catch (IOException e) {
      throw new UncheckedIOException("The entry of batch " + number + " in the commit log", e);
    }
  }

  /** The offset log's entry of the next batch, which has other settings. */
  public String planned(Map<String, String> changes) {
    return PlanEntry.of(offsets).next(changes);
  }

  /**
   * The commit log's entry of the next batch.
   *
   * @param format the checkpoint format
   * @param ids of its state, by operator and partition
   */
  public String committed(String format, Map<Long, List<List<String>>> ids) throws IOException {
    ObjectNode content = content();
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
