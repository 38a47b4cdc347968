package io.holdfast.spark.isolation;

import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.storage.Storages;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;

/**
 * The durable decisions about one batch, in {@code <checkpoint>/isolation/<batch>}. A task writes
 * its own at its end, and so before a sink can commit. If the batch runs again, the same rows are
 * parked. A batch without any failure has no marker.
 *
 * @param name of the operator
 * @param times of the batch: watermarks and timestamps of the operator, by the names of its fields
 * @param parked by partition that is parked in the batch
 * @param sealed whether the sink may have committed the batch
 */
record Marker(
    @JsonProperty("version") int version,
    @JsonProperty("operator") long operator,
    @JsonProperty("name") String name,
    @JsonProperty("times") Map<String, Long> times,
    @JsonProperty("parked") Map<Integer, Parked> parked,
    @JsonProperty("sealed") boolean sealed) {
  /**
   * A parked partition.
   *
   * @param atMs when it was parked in this batch
   * @param tries batches in which its task failed, since it is parked
   * @param error of the last try
   * @param waits the groups of keys whose rows wait: all if the partition is parked whole, none if
   *     a try delivered all of them
   */
  record Parked(
      @JsonProperty("at_ms") long atMs,
      @JsonProperty("tries") int tries,
      @JsonProperty("error") String error,
      @JsonProperty("waits") List<Integer> waits) {
    Parked {
      waits = waits == null ? KeyGroups.ALL : List.copyOf(waits);
    }
  }

  private static final int VERSION = 1;
  private static final ObjectMapper JSON = new ObjectMapper();

  static Marker of(long operator, String name, Map<String, Long> times, boolean sealed) {
    return new Marker(VERSION, operator, name, times, Map.of(), sealed);
  }

  Marker with(int partition, Parked nowParked) {
    Map<Integer, Parked> all = new TreeMap<>(parked);
    all.put(partition, nowParked);
    return new Marker(version, operator, name, times, all, sealed);
  }

  Marker seal() {
    return new Marker(version, operator, name, times, parked, true);
  }

  /** The markers of a checkpoint, by batch. */
  static TreeMap<Long, Marker> readAll(Path checkpoint, Configuration conf) {
    TreeMap<Long, Marker> markers = new TreeMap<>();
    try {
      for (FileStatus file : files(folder(checkpoint), conf)) {
        String name = file.getPath().getName();
        if (name.matches("\\d+")) {
          markers.put(Long.parseLong(name), read(file.getPath(), conf));
        }
      }
    } catch (IOException e) {
      throw new HoldfastException(
          "Cannot read what is parked in " + checkpoint + ": " + e.getMessage(), e);
    }
    return markers;
  }

  private static FileStatus[] files(Path folder, Configuration conf) throws IOException {
    try {
      return folder.getFileSystem(conf).listStatus(folder);
    } catch (FileNotFoundException none) {
      return new FileStatus[0];
    }
  }

  private static Marker read(Path file, Configuration conf) throws IOException {
    try (InputStream in = file.getFileSystem(conf).open(file)) {
      Marker marker = JSON.readValue(in, Marker.class);
      if (marker.version == VERSION && marker.times != null && marker.parked != null) {
        return marker;
      }
    } catch (JsonProcessingException e) {
      throw damaged(file, e);
    }
    throw damaged(file, null);
  }

  private static IOException damaged(Path file, IOException cause) {
    return new IOException(
        file + " is damaged, or a newer Holdfast wrote it. Put the file back from a copy.", cause);
  }

  void write(Path checkpoint, long batch, Configuration conf) {
    Path file = file(checkpoint, batch);
    try {
      byte[] text = JSON.writeValueAsBytes(this);
      new Storages(conf).at(file).write(file, out -> out.write(text), true);
    } catch (IOException e) {
      throw new HoldfastException("Cannot write the marker of batch " + batch, e);
    }
  }

  static void delete(Path checkpoint, long batch, Configuration conf) {
    Path file = file(checkpoint, batch);
    try {
      file.getFileSystem(conf).delete(file, false);
    } catch (IOException e) {
      throw new HoldfastException("Cannot delete the marker of batch " + batch, e);
    }
  }

  private static Path file(Path checkpoint, long batch) {
    return new Path(folder(checkpoint), Long.toString(batch));
  }

  private static Path folder(Path checkpoint) {
    return new Path(checkpoint, "isolation");
  }
}
