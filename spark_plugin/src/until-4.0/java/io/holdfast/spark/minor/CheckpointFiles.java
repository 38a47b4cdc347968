package io.holdfast.spark.minor;

import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.spark.sql.execution.streaming.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.FileContextBasedCheckpointFileManager;
import org.apache.spark.sql.execution.streaming.FileSystemBasedCheckpointFileManager;

/** Spark's own checkpoint file manager, to build on: 4.1 moved it to a package of its own. */
public abstract class CheckpointFiles implements CheckpointFileManager {
  private final CheckpointFileManager spark;

  protected CheckpointFiles(Path path, Configuration hadoopConf) {
    spark = sparksOwn(path, hadoopConf);
  }

  private static CheckpointFileManager sparksOwn(Path path, Configuration conf) {
    try {
      return new FileContextBasedCheckpointFileManager(path, conf);
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      // Thrown by a constructor without a throws clause, hence the detour over Exception.
      if (e instanceof UnsupportedFileSystemException) {
        return new FileSystemBasedCheckpointFileManager(path, conf);
      }
      throw new UncheckedIOException(new IOException("Cannot open " + path, e));
    }
  }

  /** Narrows the result to a type that is the same in all minors. */
  @Override
  public abstract AtomicStream createAtomic(Path path, boolean overwriteIfPossible);

  /** A new file, made as Spark makes it. */
  protected final AtomicStream createAsSpark(Path path, boolean overwriteIfPossible) {
    CancellableFSDataOutputStream file = spark.createAtomic(path, overwriteIfPossible);
    return new AtomicStream(file) {
      @Override
      public void close() throws IOException {
        file.close();
      }

      @Override
      public void cancel() {
        file.cancel();
      }
    };
  }

  @Override
  public FSDataInputStream open(Path path) {
    return spark.open(path);
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    return spark.list(path, filter);
  }

  @Override
  public void mkdirs(Path path) {
    spark.mkdirs(path);
  }

  @Override
  public boolean exists(Path path) {
    return spark.exists(path);
  }

  @Override
  public void delete(Path path) {
    spark.delete(path);
  }

  @Override
  public boolean isLocal() {
    return spark.isLocal();
  }

  @Override
  public Path createCheckpointDirectory() {
    return spark.createCheckpointDirectory();
  }
}
