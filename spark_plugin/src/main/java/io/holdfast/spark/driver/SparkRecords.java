package io.holdfast.spark.driver;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.DamagedStateException;
import io.holdfast.spark.HoldfastCheckpointFileManager;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.minor.AtomicStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Which Spark wrote the state of a checkpoint, in {@code <checkpoint>/state/holdfast.json}. An older
 * minor must not go on with it, and Spark itself does not notice. Read once in a run, at its start;
 * written only when a newer minor is about to change the state for the first time.
 */
public final class SparkRecords {
  private static final String NAME = "holdfast.json";
  private static final int VERSION = 1;

  private static final String RUNNING = org.apache.spark.package$.MODULE$.SPARK_VERSION();

  /** By checkpoint, what its record says as far as this application knows. */
  private final Map<Path, Optional<SparkVersion>> known = new ConcurrentHashMap<>();

  /**
   * A query is about to start, perhaps with a folder that another application used, or that was
   * deleted, since this one saw it last.
   *
   * @throws UnsupportedStateException if a newer minor of Spark wrote the checkpoint
   */
  public void starting(Path checkpoint, Configuration conf) {
    Path path = qualified(checkpoint, conf);
    known.put(path, accepted(path, conf));
  }

  /** As {@link #starting}, where the plugin is not running and nothing is remembered. */
  public static void refuseNewer(Path checkpoint, Configuration conf) {
    accepted(qualified(checkpoint, conf), conf);
  }

  /** A batch is about to be planned: the state that the record tells of may change from now on. */
  public void planning(Path checkpoint, Configuration conf) {
    Path path = qualified(checkpoint, conf);
    // Without a record nothing says yet that the query has state.
    if (known.computeIfAbsent(path, key -> accepted(key, conf)).isPresent()) {
      record(path, conf);
    }
  }

  /**
   * Spark is about to describe an operator's state.
   *
   * @param checkpoint of which nothing happens unless a query was started with it: it was taken from
   *     a path that may only look like one of state
   */
  public void describing(Path checkpoint, Configuration conf) {
    Path path = qualified(checkpoint, conf);
    if (known.containsKey(path)) {
      record(path, conf);
    }
  }

  /** A batch of a query of Holdfast's is about to be committed. */
  public void committing(Path checkpoint, Configuration conf) {
    record(qualified(checkpoint, conf), conf);
  }

  private void record(Path checkpoint, Configuration conf) {
    SparkVersion running = SparkVersion.of(RUNNING);
    Optional<SparkVersion> recorded =
        known.computeIfAbsent(checkpoint, key -> accepted(key, conf));
    if (recorded.isEmpty() || SparkVersion.BY_MINOR.compare(recorded.get(), running) < 0) {
      write(checkpoint, conf);
      known.put(checkpoint, Optional.of(running));
    }
  }

  /** What the record says, unless that is a minor above the running one. */
  private static Optional<SparkVersion> accepted(Path checkpoint, Configuration conf) {
    Path file = fileOf(checkpoint);
    Optional<String> text = read(file, conf);
    if (text.isEmpty()) {
      return Optional.empty();
    }
    String spark = sparkOf(text.get(), file);
    SparkVersion recorded = SparkVersion.of(spark);
    SparkVersion running = SparkVersion.of(RUNNING);
    if (SparkVersion.BY_MINOR.compare(recorded, running) > 0) {
      throw new UnsupportedStateException(
          "Checkpoint "
              + checkpoint
              + " was written by Spark "
              + spark
              + ", and this application runs Spark "
              + RUNNING
              + ": an older minor of Spark may not understand what a newer one wrote. Nothing was"
              + " changed. Run the query on Spark "
              + recorded.name()
              + " or newer. To run it on Spark "
              + running.name()
              + ", start it with a new checkpoint folder, or with a copy that was made before Spark "
              + recorded.name()
              + " wrote to it. ("
              + file
              + " records the version.)");
    }
    return Optional.of(recorded);
  }

  private static Optional<String> read(Path file, Configuration conf) {
    try (InputStream in = file.getFileSystem(conf).open(file)) {
      return Optional.of(new String(in.readAllBytes(), StandardCharsets.UTF_8));
    } catch (FileNotFoundException none) {
      return Optional.empty();
    } catch (IOException e) {
      throw new HoldfastException("Cannot read " + file, e);
    }
  }

  private static String sparkOf(String text, Path file) {
    JsonNode record;
    try {
      record = new ObjectMapper().readTree(text);
    } catch (JsonProcessingException e) {
      throw damaged(file);
    }
    int version = record.path("version").asInt(0);
    if (version > VERSION) {
      throw new UnsupportedStateException(
          file
              + " is of version "
              + version
              + ", and this Holdfast reads versions up to "
              + VERSION
              + ": a newer Holdfast wrote to the checkpoint. Nothing was changed. Use that one, or a"
              + " newer one.");
    }
    String spark = record.path("spark").asText("");
    if (version < 1 || !SparkVersion.isOne(spark)) {
      throw damaged(file);
    }
    return spark;
  }

  private static DamagedStateException damaged(Path file) {
    return new DamagedStateException(
        file
            + " is damaged: it does not say which Spark wrote the checkpoint. Nothing was changed."
            + " Restore the file from a copy, or delete it if the checkpoint was never used with a"
            + " newer Spark than "
            + SparkVersion.of(RUNNING).name()
            + ": the query then writes it again.");
  }

  private static void write(Path checkpoint, Configuration conf) {
    Path file = fileOf(checkpoint);
    byte[] record =
        new ObjectMapper()
            .createObjectNode()
            .put("version", VERSION)
            .put("spark", RUNNING)
            .toString()
            .getBytes(StandardCharsets.UTF_8);
    AtomicStream out = new HoldfastCheckpointFileManager(checkpoint, conf).createAtomic(file, true);
    try {
      out.write(record);
      out.close();
    } catch (IOException e) {
      out.cancel();
      throw new HoldfastException("Cannot write " + file, e);
    }
  }

  private static Path fileOf(Path checkpoint) {
    return new Path(new Path(checkpoint, "state"), NAME);
  }

  private static Path qualified(Path checkpoint, Configuration conf) {
    try {
      return checkpoint.getFileSystem(conf).makeQualified(checkpoint);
    } catch (IOException e) {
      throw new HoldfastException("Cannot resolve the checkpoint " + checkpoint, e);
    }
  }
}
