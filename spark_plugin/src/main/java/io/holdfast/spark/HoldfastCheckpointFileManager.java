package io.holdfast.spark;

import io.holdfast.spark.driver.CheckpointGuard;
import io.holdfast.spark.driver.CommitLogStream;
import io.holdfast.spark.files.CommitLog;
import io.holdfast.spark.files.ObjectStream;
import io.holdfast.spark.minor.AtomicStream;
import io.holdfast.spark.minor.CheckpointFiles;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;

/**
 * Spark's own checkpoint file manager with two additions. Before {@code commits/N} is published on
 * the driver, every physical file it refers to is made durable; if that fails, so does the batch, and
 * Spark replays it. And on object stores files are written without a rename.
 */
public final class HoldfastCheckpointFileManager extends CheckpointFiles {
  private final Configuration conf;
  private final Path root;

  public HoldfastCheckpointFileManager(Path path, Configuration hadoopConf) {
    super(path, hadoopConf);
    root = path;
    conf = hadoopConf;
  }

  @Override
  public AtomicStream createAtomic(Path path, boolean overwriteIfPossible) {
    CheckpointGuard.refuseOldFormat(conf, path);
    AtomicStream out = create(path, overwriteIfPossible);
    return CommitLog.isEntry(path)
        ? new CommitLogStream(out, path, conf, HoldfastPlugin::driver)
        : out;
  }

  private AtomicStream create(Path path, boolean overwriteIfPossible) {
    try {
      return ObjectStream.serves(path, conf)
          ? ObjectStream.create(path, overwriteIfPossible, conf)
          : createAsSpark(path, overwriteIfPossible);
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot create " + path, e);
    }
  }

  @Override
  public FSDataInputStream open(Path path) {
    CheckpointGuard.refuseForeignCheckpoint(this::exists, super::open, conf, path);
    return super.open(path);
  }

  @Override
  public void mkdirs(Path path) {
    CheckpointGuard.refuseOldFormat(conf, path);
    super.mkdirs(path);
  }

  /** The first that a query does when it starts. */
  @Override
  public Path createCheckpointDirectory() {
    CheckpointGuard.checkSettings(conf);
    CheckpointGuard.refuseOldFormat(conf, root);
    return super.createCheckpointDirectory();
  }
}
