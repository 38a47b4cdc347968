package io.holdfast.spark;

import io.holdfast.spark.driver.CheckpointGuard;
import io.holdfast.spark.driver.CommitLogStream;
import io.holdfast.spark.driver.HoldfastDriver;
import io.holdfast.spark.driver.SparkRecords;
import io.holdfast.spark.files.CommitLog;
import io.holdfast.spark.files.Deletes;
import io.holdfast.spark.files.DurableStreams;
import io.holdfast.spark.files.ObjectStream;
import io.holdfast.spark.files.RecentEntries;
import io.holdfast.spark.minor.AtomicStream;
import io.holdfast.spark.minor.CheckpointFiles;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Spark's own checkpoint file manager with some additions. Before {@code commits/N} is published on
 * the driver, every physical file it refers to is made durable; if that fails, so does the batch, and
 * Spark replays it. What Spark writes itself is durable as well before it has its name, on local disks
 * and on HDFS, and on object stores it is written without a rename. And over a network Spark does not
 * ask for what this process knows, as it wrote it.
 */
public final class HoldfastCheckpointFileManager extends CheckpointFiles {
  /** What an operator keeps about its state, which Spark writes on the driver. */
  private static final Pattern STATE_FILE = Pattern.compile("(.+)/state/\\d+/.+");

  /** Where a store of Spark's own providers keeps files, whose durability is theirs to decide. */
  private static final Pattern STORE =
      Pattern.compile(".+/state/\\d+/\\d+(/(?!_metadata$)[^/]+)?");

  private final Configuration conf;
  private final Path root;
  private final boolean ofStore;

  /** Empty where a question costs nothing. */
  private final Optional<RecentEntries> recent;

  public HoldfastCheckpointFileManager(Path path, Configuration hadoopConf) {
    super(path, hadoopConf);
    root = path;
    conf = hadoopConf;
    ofStore = STORE.matcher(path.toUri().getPath()).matches();
    recent =
        ofStore || DurableStreams.isLocal(fileSystem(path))
            ? Optional.empty()
            : Optional.of(new RecentEntries());
  }

  private FileSystem fileSystem(Path path) {
    try {
      return path.getFileSystem(conf);
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot reach " + path, e);
    }
  }

  @Override
  public AtomicStream createAtomic(Path path, boolean overwriteIfPossible) {
    CheckpointGuard.refuseOldFormat(conf, path);
    recordSpark(path);
    AtomicStream file = create(path, overwriteIfPossible);
    AtomicStream out =
        CommitLog.isEntry(path)
            ? new CommitLogStream(file, path, conf, HoldfastPlugin::driver)
            : file;
    return recent
        .filter(any -> RecentEntries.isEntry(path))
        .map(entries -> entries.keeping(out, path))
        .orElse(out);
  }

  /** An entry of the commit log would be too late: executors have written by then. */
  private void recordSpark(Path path) {
    HoldfastPlugin.startedDriver()
        .map(HoldfastDriver::sparkRecords)
        .ifPresent(
            records -> {
              Matcher ofState = STATE_FILE.matcher(path.toString());
              if (CommitLog.isPlan(path)) {
                records.planning(path.getParent().getParent(), conf);
              } else if (ofState.matches() && CheckpointGuard.wantsHoldfast(conf)) {
                records.describing(new Path(ofState.group(1)), conf);
              }
            });
  }

  private AtomicStream create(Path path, boolean overwriteIfPossible) {
    try {
      FileSystem fileSystem = path.getFileSystem(conf);
      if (ofStore && !ObjectStream.serves(fileSystem, path)) {
        return createAsSpark(path, overwriteIfPossible);
      }
      Path qualified = fileSystem.makeQualified(path);
      return DurableStreams.create(fileSystem, qualified, overwriteIfPossible, conf)
          .orElseGet(() -> createAsSpark(path, overwriteIfPossible));
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot create " + path, e);
    }
  }

  @Override
  public boolean exists(Path path) {
    if (recent.isPresent()) {
      if (recent.get().has(path)) {
        return true;
      }
      if (recent.get().isNext(path) && refusesTakenNames(path)) {
        return false;
      }
    }
    return super.exists(path);
  }

  private boolean refusesTakenNames(Path path) {
    try {
      return DurableStreams.refusesTakenNames(path.getFileSystem(conf), path);
    } catch (IOException e) {
      return false;
    }
  }

  @Override
  public void delete(Path path) {
    recent.ifPresent(entries -> entries.forget(path));
    if (!CommitLog.isEntry(path) && !CommitLog.isPlan(path)) {
      super.delete(path);
      return;
    }
    // Known to be no folder, which saves an object store the questions.
    try {
      Deletes.delete(path.getFileSystem(conf), List.of(path));
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot delete " + path, e);
    }
  }

  @Override
  public FSDataInputStream open(Path path) {
    return recent.flatMap(entries -> entries.open(path)).orElseGet(() -> openStored(path));
  }

  private FSDataInputStream openStored(Path path) {
    CheckpointGuard.refuseForeignCheckpoint(this::exists, super::open, conf, path);
    return super.open(path);
  }

  @Override
  public void mkdirs(Path path) {
    CheckpointGuard.refuseOldFormat(conf, path);
    makeDurable(path);
    super.mkdirs(path);
  }

  private void makeDurable(Path folder) {
    if (ofStore) {
      return;
    }
    try {
      FileSystem fileSystem = folder.getFileSystem(conf);
      DurableStreams.makeFolder(fileSystem, fileSystem.makeQualified(folder), conf);
    } catch (IOException e) {
      throw new UncheckedIOException("Cannot create the folder " + folder, e);
    }
  }

  /** The first that a query does when it starts. */
  @Override
  public Path createCheckpointDirectory() {
    CheckpointGuard.checkSettings(conf);
    CheckpointGuard.refuseOldFormat(conf, root);
    HoldfastPlugin.startedDriver()
        .ifPresentOrElse(
            driver -> driver.sparkRecords().starting(root, conf),
            () -> SparkRecords.refuseNewer(root, conf));
    makeDurable(root);
    return super.createCheckpointDirectory();
  }
}
