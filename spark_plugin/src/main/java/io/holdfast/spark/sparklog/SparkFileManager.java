package io.holdfast.spark.sparklog;

import io.holdfast.spark.storage.AtomicStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileContextBasedCheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager;

/** A checkpoint file manager of Spark, on top of another one. */
public abstract class SparkFileManager implements CheckpointFileManager {
  private final CheckpointFileManager below;

  protected SparkFileManager(CheckpointFileManager below) {
    this.below = below;
  }

  /** The file manager that Spark itself takes for a path. */
  protected static CheckpointFileManager sparksOwn(Path path, Configuration conf) {
    try {
      return new FileContextBasedCheckpointFileManager(path, conf);
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      // The constructor throws it without a throws clause, so catch every Exception.
      if (e instanceof UnsupportedFileSystemException) {
        return new FileSystemBasedCheckpointFileManager(path, conf);
      }
      throw new UncheckedIOException(new IOException("Cannot open " + path, e));
    }
  }

  /** Returns a class that is the same in all minors. */
  @Override
  public AtomicStream createAtomic(Path path, boolean overwriteIfPossible) {
    CancellableFSDataOutputStream file = below.createAtomic(path, overwriteIfPossible);
    return file instanceof AtomicStream own
        ? own
        : new AtomicStream(file) {
          @Override
          protected void publish() throws IOException {
            file.close();
          }

          @Override
          protected void discard() {
            file.cancel();
          }
        };
  }

  @Override
  public FSDataInputStream open(Path path) {
    return below.open(path);
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    return below.list(path, filter);
  }

  @Override
  public void mkdirs(Path path) {
    below.mkdirs(path);
  }

  @Override
  public boolean exists(Path path) {
    return below.exists(path);
  }

  @Override
  public void delete(Path path) {
    below.delete(path);
  }

  @Override
  public boolean isLocal() {
    return below.isLocal();
  }

  @Override
  public Path createCheckpointDirectory() {
    return below.createCheckpointDirectory();
  }

  /** Spark calls it since 4.1. */
  public void close() {
    below.close(); // from-4.1
  }
}
