package io.holdfast.spark;

import io.holdfast.spark.driver.CheckpointGuard;
import io.holdfast.spark.driver.CommitLogStream;
import io.holdfast.spark.files.CommitLog;
import io.holdfast.spark.files.ObjectStream;
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

/**
 * Spark's own checkpoint file manager with two additions. Before {@code commits/N} is published on
 * the driver, every physical file it refers to is made durable; if that fails, so does the batch, and
 * Spark replays it. And on object stores files are written without a rename.
 */
public final class HoldfastCheckpointFileManager implements CheckpointFileManager {
  private final CheckpointFileManager spark;
  private final Configuration conf;
  private final Path root;

  public HoldfastCheckpointFileManager(Path path, Configuration hadoopConf) {
    root = path;
    conf = hadoopConf;
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

  @Override
  public CancellableFSDataOutputStream createAtomic(Path path, boolean overwriteIfPossible) {
    CheckpointGuard.refuseOldFormat(conf, path);
    CancellableFSDataOutputStream out = create(path, overwriteIfPossible);
    return CommitLog.isEntry(path)
        ? new CommitLogStream(out, path, conf, HoldfastPlugin::driver)
        : out;
  }

  private CancellableFSDataOutputStream create(Path path, boolean overwriteIfPossible) {
    try {
      return ObjectStream.serves(path, conf)
          ? ObjectStream.create(path, overwriteIfPossible, conf)
          : spark.createAtomic(path, overwriteIfPossible);
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot create " + path, e);
    }
  }

  @Override
  public FSDataInputStream open(Path path) {
    CheckpointGuard.refuseForeignCheckpoint(spark, conf, path);
    return spark.open(path);
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    return spark.list(path, filter);
  }

  @Override
  public void mkdirs(Path path) {
    CheckpointGuard.refuseOldFormat(conf, path);
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

  /** The first that a query does when it starts. */
  @Override
  public Path createCheckpointDirectory() {
    CheckpointGuard.checkSettings(conf);
    CheckpointGuard.refuseOldFormat(conf, root);
    return spark.createCheckpointDirectory();
  }

  @Override
  public void close() {
    spark.close();
  }
}
