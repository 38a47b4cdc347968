package io.holdfast.spark;

import io.holdfast.spark.driver.CheckpointGuard;
import io.holdfast.spark.driver.CommitEntry;
import io.holdfast.spark.driver.HoldfastDriver;
import io.holdfast.spark.driver.Interruption;
import io.holdfast.spark.driver.SparkRecords;
import io.holdfast.spark.moves.Adoption;
import io.holdfast.spark.moves.SinkLog;
import io.holdfast.spark.sparklog.DurableFileManager;
import io.holdfast.spark.sparklog.SparkFile;
import io.holdfast.spark.sparklog.SparkFile.Kind;
import io.holdfast.spark.sparklog.SparkFileManager;
import io.holdfast.spark.storage.AtomicStream;
import java.io.IOException;
import java.util.Arrays;
import java.util.Comparator;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.PathFilter;

/**
 * The file manager of Spark for a checkpoint. Before the driver publishes {@code commits/N}, it
 * makes all physical files of the entry durable. If that fails, the batch fails, and Spark replays
 * it. It refuses checkpoints that Holdfast cannot continue before anything is written.
 *
 * <p>Holdfast also writes Spark's own files, unless {@code sparkFiles} is off.
 */
public final class HoldfastCheckpointFileManager extends SparkFileManager {
  private final Configuration conf;
  private final Path root;

  /** The query has begun: its checkpoint belongs to Holdfast, or is new. */
  private volatile boolean begun;

  public HoldfastCheckpointFileManager(Path path, Configuration hadoopConf) {
    super(
        HoldfastConf.writesSparkFiles(hadoopConf)
            ? new DurableFileManager(path, hadoopConf)
            : sparksOwn(path, hadoopConf));
    root = path;
    conf = hadoopConf;
  }

  @Override
  public AtomicStream createAtomic(Path path, boolean overwriteIfPossible) {
    CheckpointGuard.refuseOldFormat(conf, path);
    SparkFile file = SparkFile.of(path);
    recordSpark(file);
    begun |= file.kind() == Kind.PLAN;
    AtomicStream out = super.createAtomic(path, overwriteIfPossible);
    return file.kind() == Kind.COMMIT ? CommitEntry.of(out, file, conf) : out;
  }

  /** Records the running Spark now: at the commit, executors have changed the state already. */
  private void recordSpark(SparkFile file) {
    Optional<SparkRecords> records = HoldfastDriver.started().map(HoldfastDriver::sparkRecords);
    try {
      if (file.kind() == Kind.PLAN) {
        records.ifPresent(of -> of.planning(file.checkpoint(), conf));
        HoldfastDriver.started().ifPresent(driver -> driver.planning(file, conf));
      } else if (CheckpointGuard.wantsHoldfast(conf)) {
        records.ifPresent(of -> of.creating(file.path(), conf));
      }
    } catch (RuntimeException e) {
      throw Interruption.orSame(e);
    }
  }

  /** The first plan that a query reads belongs to the batch that it continues. */
  @Override
  public FSDataInputStream open(Path path) {
    if (!begun && CheckpointGuard.isRestart(conf, path)) {
      try {
        CheckpointGuard.refuseForeignCheckpoint(this::exists, super::open, path);
        SinkLog.atStart(SparkFile.of(path).checkpoint(), conf);
        begun = true;
      } catch (IOException | RuntimeException e) {
        throw Interruption.orSame(e);
      }
    }
    return super.open(path);
  }

  @Override
  public FileStatus[] list(Path path, PathFilter filter) {
    if (path.getName().equals("offsets")) {
      HoldfastDriver.started()
          .ifPresent(driver -> driver.initializing(path.getParent(), conf));
    }
    FileStatus[] found = super.list(path, filter);
    return !begun && HoldfastConf.adopts(conf) && adopted(found) ? super.list(path, filter) : found;
  }

  /** Adopts the checkpoint if its newest plan is among these files, and another provider's. */
  private boolean adopted(FileStatus[] listed) {
    Optional<SparkFile> newest =
        Arrays.stream(listed)
            .map(file -> SparkFile.of(file.getPath()))
            .filter(file -> CheckpointGuard.isRestart(conf, file.path()))
            .max(Comparator.comparingLong(SparkFile::number));
    if (newest.isEmpty()) {
      return false;
    }
    SparkFile plan = newest.get();
    try {
      if (!CheckpointGuard.isAdoptable(this::exists, super::open, plan.path())) {
        return false;
      }
      boolean changed = Adoption.atStart(plan.checkpoint(), conf);
      // Files that another driver wrote during this are older than the log that is read next.
      HoldfastDriver.started().ifPresent(driver -> driver.starting(plan.checkpoint(), conf));
      return changed;
    } catch (IOException | RuntimeException e) {
      throw Interruption.orSame(e);
    }
  }

  @Override
  public void mkdirs(Path path) {
    CheckpointGuard.refuseOldFormat(conf, path);
    super.mkdirs(path);
  }

  /** The first call of a query when it starts. */
  @Override
  public Path createCheckpointDirectory() {
    CheckpointGuard.checkSettings(conf);
    if (HoldfastConf.isDefault(conf::get)) {
      HoldfastDriver.running();
    }
    CheckpointGuard.refuseOldFormat(conf, root);
    HoldfastDriver.started().ifPresent(driver -> driver.starting(root, conf));
    boolean hasState =
        HoldfastDriver.started()
            .map(driver -> driver.sparkRecords().starting(root, conf))
            .orElseGet(() -> SparkRecords.refuseNewer(root, conf));
    if (hasState && CheckpointGuard.wantsHoldfast(conf)) {
      CheckpointGuard.refuseTornLogs(conf, root);
    }
    return super.createCheckpointDirectory();
  }
}
