package io.holdfast.spark.driver;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.DamagedStateException;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.NewerFormatException;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.minor.SparkVersion;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.sparklog.DurableFileManager;
import io.holdfast.spark.storage.AtomicStream;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.Optional;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Records which Spark wrote the state of a checkpoint, in {@code <checkpoint>/state/holdfast.json}:
 * an older minor must not continue with it, and Spark does not check. A run reads the record once,
 * at its start. It writes the record before a newer minor changes the state for the first time.
 */
public final class SparkRecords {
  private static final String NAME = "holdfast.json";
  private static final int VERSION = 1;

  private static final String RUNNING = org.apache.spark.package$.MODULE$.SPARK_VERSION();

  /** By checkpoint, the version in its record as far as this application knows. */
  private final Map<Path, Optional<SparkVersion>> known = new ConcurrentHashMap<>();

  /**
   * Called before a query starts. Another application may have used or deleted the folder since
   * this application last read it.
   *
   * @return whether the record says that the query has state in Holdfast
   * @throws UnsupportedStateException if a newer minor of Spark, or a newer Holdfast, wrote it
   */
  public boolean starting(Path checkpoint, Configuration conf) {
    Path path = qualified(checkpoint, conf);
    Optional<SparkVersion> recorded = accepted(path, conf);
    known.put(path, recorded);
    return recorded.isPresent();
  }

  /** Checks like {@link #starting}, but remembers nothing, because the plugin is not running. */
  public static boolean refuseNewer(Path checkpoint, Configuration conf) {
    return accepted(qualified(checkpoint, conf), conf).isPresent();
  }

  /** Called before a batch is planned, which may change the state. */
  public void planning(Path checkpoint, Configuration conf) {
    Path path = qualified(checkpoint, conf);
    // Without a record the query may have no state.
    if (known.computeIfAbsent(path, key -> accepted(key, conf)).isPresent()) {
      record(path, conf);
    }
  }

  /**
   * Called before a file is made. Spark describes the state of an operator below {@code state} of
   * the checkpoint. A checkpoint may be in another one, so the innermost counts.
   */
  public void creating(Path file, Configuration conf) {
    Path path = qualified(file, conf);
    String name = "";
    while (path != null && !known.containsKey(path)) {
      name = path.getName();
      path = path.getParent();
    }
    if (path != null && name.equals("state") && !file.getName().equals(NAME)) {
      record(path, conf);
    }
  }

  boolean knows(Path checkpoint, Configuration conf) {
    return known.containsKey(qualified(checkpoint, conf));
  }

  /** Called before a batch of a query with state in Holdfast is committed. */
  public void committing(Path checkpoint, Configuration conf) {
    record(qualified(checkpoint, conf), conf);
  }

  private void record(Path checkpoint, Configuration conf) {
    SparkVersion running = SparkVersion.of(RUNNING);
    Optional<SparkVersion> recorded = known.computeIfAbsent(checkpoint, key -> accepted(key, conf));
    if (recorded.isEmpty() || SparkVersion.BY_MINOR.compare(recorded.get(), running) < 0) {
      write(checkpoint, conf);
      known.put(checkpoint, Optional.of(running));
    }
  }

  /** Returns the recorded version; throws if it is a newer minor than the running one. */
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
          String.format(
              "Checkpoint %s was written by Spark %s, and this application runs Spark %s: an older"
                  + " minor of Spark may not understand what a newer one wrote. Nothing was"
                  + " changed. Run the query on Spark %s or newer. To run it on Spark %s, start it"
                  + " with a new checkpoint folder, or with a copy that was made before Spark %s"
                  + " wrote to it. (%s records the version.)",
              checkpoint, spark, RUNNING, recorded.name(), running.name(), recorded.name(), file));
    }
    return Optional.of(recorded);
  }

  private static Optional<String> read(Path file, Configuration conf) {
    try {
      return Optional.of(Batch.text(file, conf));
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
      throw new NewerFormatException(
          String.format(
              "%s is of version %s, and this Holdfast reads versions up to %s: a newer Holdfast"
                  + " wrote to the checkpoint. Nothing was changed. Upgrade Holdfast.",
              file, version, VERSION));
    }
    String spark = record.path("spark").asText("");
    if (version < 1 || !SparkVersion.isOne(spark)) {
      throw damaged(file);
    }
    return spark;
  }

  private static DamagedStateException damaged(Path file) {
    return new DamagedStateException(
        String.format(
            "%s is damaged: it does not say which Spark wrote the checkpoint. Nothing was changed."
                + " Restore the file from a copy, or delete it if the checkpoint was never used"
                + " with a newer Spark than %s: the query then writes it again.",
            file, SparkVersion.of(RUNNING).name()));
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
    AtomicStream out = new DurableFileManager(checkpoint, conf).createAtomic(file, true);
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

  static Path qualified(Path checkpoint, Configuration conf) {
    try {
      return checkpoint.getFileSystem(conf).makeQualified(checkpoint);
    } catch (IOException e) {
      throw new HoldfastException("Cannot resolve the checkpoint " + checkpoint, e);
    }
  }
}
