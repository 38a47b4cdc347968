package io.holdfast.spark.moves;

import java.io.BufferedReader;
import java.io.BufferedWriter;
import java.io.IOException;
import java.io.InputStreamReader;
import java.io.OutputStreamWriter;
import java.nio.charset.StandardCharsets;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;

/**
 * The files of the state that an adoption found, in {@code moves/N} of the checkpoint: a line each,
 * with size and path. If the record is cut, a purge deletes fewer files.
 */
public final class OldFiles {
  public static final String FOLDER = "moves";

  /** A size and a path; the last line may be cut. */
  private static final Pattern LINE = Pattern.compile("([0-9]+) (state/[0-9]+/[0-9]+/.+)");

  private final Path checkpoint;
  private final Path record;
  private final FileSystem files;
  private long count;
  private long bytes;

  /** Files of the adoption that publishes this batch. */
  public OldFiles(String checkpoint, long batch, Configuration conf) throws IOException {
    this.checkpoint = new Path(checkpoint);
    record = new Path(new Path(this.checkpoint, FOLDER), Long.toString(batch));
    files = record.getFileSystem(conf);
  }

  public long count() {
    return count;
  }

  public long bytes() {
    return bytes;
  }

  /** Leaves out files that describe the state. */
  public void record() throws IOException {
    Path root = files.makeQualified(checkpoint);
    RemoteIterator<LocatedFileStatus> found = files.listFiles(new Path(root, "state"), true);
    try (BufferedWriter out =
        new BufferedWriter(
            new OutputStreamWriter(files.create(record, true), StandardCharsets.UTF_8))) {
      while (found.hasNext()) {
        LocatedFileStatus file = found.next();
        String path = root.toUri().relativize(file.getPath().toUri()).getPath();
        if (path.matches("state/[0-9]+/[0-9]+/.*") && !path.contains("/_")) {
          out.write(file.getLen() + " " + path + "\n");
        }
      }
    }
  }

  /** Counts the files of the record; may also delete them, and the record last. */
  public void purge(boolean delete) throws IOException {
    try (BufferedReader in =
        new BufferedReader(new InputStreamReader(files.open(record), StandardCharsets.UTF_8))) {
      for (String line = in.readLine(); line != null; line = in.readLine()) {
        Matcher file = LINE.matcher(line);
        if (!file.matches()) {
          continue;
        }
        if (delete) {
          files.delete(new Path(checkpoint, file.group(2)), false);
        }
        count++;
        bytes += Long.parseLong(file.group(1));
      }
    }
    if (delete) {
      files.delete(record, false);
    }
  }
}
