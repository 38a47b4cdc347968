package io.holdfast.spark.isolation.driver;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.storage.Storages;
import java.io.IOException;
import java.io.InputStream;
import java.lang.ref.Cleaner;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.NavigableSet;
import java.util.TreeSet;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/** A machine of the core for a run of a query, and its markers, {@code <folder>/N}. */
final class Machine {
  private static final Cleaner CLEANER = Cleaner.create();
  static final ObjectMapper JSON = new ObjectMapper();

  private final Path folder;
  private final Configuration conf;
  private final long run;

  /** Batches with a marker when the run began. */
  final NavigableSet<Long> batches = new TreeSet<>();

  /** Reads all markers of a folder for a machine that was opened. */
  private Machine(long opened, Path folder, Configuration conf) {
    this.folder = folder;
    this.conf = conf;
    run = opened;
    CLEANER.register(this, () -> Native.closeRun(opened));
    try {
      for (FileStatus file : Storages.list(folder.getFileSystem(conf), folder).toList()) {
        if (file.getPath().getName().matches("\\d+")) {
          read(file.getPath());
        }
      }
    } catch (IOException e) {
      throw new HoldfastException(
          "Cannot read the markers in " + folder + ": " + e.getMessage(), e);
    }
  }

  /** Isolates failures of partitions. */
  static Machine ofPartitions(String id, Path checkpoint, Configuration conf) {
    long opened = Native.openRun(id, checkpoint.toString());
    return new Machine(opened, new Path(checkpoint, "isolation"), conf);
  }

  /** Sets bad rows of one source aside. */
  static Machine ofRows(Path folder, Configuration conf) {
    return new Machine(Native.openRowsRun(), folder, conf);
  }

  private void read(Path file) throws IOException {
    try (InputStream in = file.getFileSystem(conf).open(file)) {
      if (!Native.knowMarker(run, Long.parseLong(file.getName()), in.readAllBytes())) {
        throw new IOException(
            file + " is damaged, or a newer Holdfast wrote it. Put the file back from a copy.");
      }
      batches.add(Long.parseLong(file.getName()));
    }
  }

  /** Null without a marker. */
  Marker marker(long batch) {
    String text = Native.markerOf(run, batch);
    try {
      return text == null ? null : JSON.readValue(text, Marker.class);
    } catch (JsonProcessingException e) {
      throw new IllegalStateException(e);
    }
  }

  /**
   * Tells what happened in a batch. Returns the actions, each an object with one field.
   *
   * @param through partitions that tasks delivered or parked to the end
   * @param fact as in the core's messages.rs: a text, or a map with one entry
   */
  JsonNode tell(long batch, List<Integer> through, Object fact) {
    try {
      byte[] told = JSON.writeValueAsBytes(List.of(through, fact));
      return JSON.readTree(Native.tellRun(run, batch, told));
    } catch (IOException e) {
      throw new IllegalStateException(e);
    }
  }

  void write(long batch, String marker) {
    Path file = new Path(folder, Long.toString(batch));
    try {
      byte[] text = marker.getBytes(StandardCharsets.UTF_8);
      new Storages(conf).at(file).write(file, out -> out.write(text), true);
    } catch (IOException e) {
      throw new HoldfastException("Cannot write the marker of batch " + batch, e);
    }
  }

  void delete(long batch) {
    Path file = new Path(folder, Long.toString(batch));
    try {
      file.getFileSystem(conf).delete(file, false);
    } catch (IOException e) {
      throw new HoldfastException("Cannot delete the marker of batch " + batch, e);
    }
  }
}
