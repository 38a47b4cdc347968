package io.holdfast.spark.driver;

import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.files.CommitLog;
import io.holdfast.spark.files.SegmentFolder;
import java.io.IOException;
import java.io.InputStream;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Deletes merged files that no retained batch needs. Only the driver decides this: a file is
 * shared by executors as soon as a partition moves.
 *
 * <p>Spark itself removes old entries of the commit log (spark.sql.streaming.minBatchesToRetain);
 * the oldest one that is left says how far back state is needed.
 */
final class Reclaimer {
  private static final Logger LOG = LoggerFactory.getLogger(Reclaimer.class);

  /** One pass over a folder. */
  interface Pass {
    /**
     * Deletes what the oldest retained entry and everything after it do not need.
     *
     * @param batch that was published last
     * @param partitions {@code operator/partition} of each id
     * @param ids of the oldest retained entry
     * @return what was done, for the log; empty when nothing was
     */
    String reclaim(SegmentFolder folder, long batch, String[] partitions, String[] ids);
  }

  private final Pass pass;
  private final AtomicBoolean busy = new AtomicBoolean();
  private final ExecutorService worker =
      Executors.newSingleThreadExecutor(DaemonThreads.named("holdfast-reclaimer"));

  Reclaimer(Pass pass) {
    this.pass = pass;
  }

  void published(Path entry, Configuration conf) {
    long every = batchesBetween(conf);
    boolean due = Long.parseLong(entry.getName()) % every == every - 1;
    // A pass that is skipped because another one runs is made up for by the next.
    if (due && busy.compareAndSet(false, true)) {
      worker.execute(() -> run(entry, conf));
    }
  }

  /**
   * Batches between two passes, each of which lists the folder and reads the index of every new file:
   * so many may pile up, as Spark's own providers understand these two settings.
   */
  private static long batchesBetween(Configuration conf) {
    int retained = conf.getInt(HoldfastConf.RETAINED_KEY, HoldfastConf.RETAINED_DEFAULT);
    double extra = conf.getDouble(HoldfastConf.EXTRA_SPACE_KEY, HoldfastConf.EXTRA_SPACE_DEFAULT);
    return Math.max(1, Math.round(retained * extra));
  }

  void stop() {
    worker.shutdownNow();
  }

  private void run(Path entry, Configuration conf) {
    Path state = CommitLog.stateOf(entry);
    try {
      List<CommitLog.StoreId> oldest = oldestRetained(entry, conf);
      String[] partitions =
          oldest.stream().map(CommitLog.StoreId::partition).toArray(String[]::new);
      String[] ids = oldest.stream().map(store -> store.id).toArray(String[]::new);
      SegmentFolder folder = SegmentFolder.of(state.toString(), conf);
      long batch = Long.parseLong(entry.getName());
      String done = pass.reclaim(folder, batch, partitions, ids);
      if (!done.isEmpty()) {
        LOG.info("Holdfast reclaimed {}: {}", state, done);
      }
    } catch (IOException | RuntimeException e) {
      // Nothing depends on it but disk space; the next pass tries again.
      LOG.warn("Holdfast could not reclaim files in {}", state, e);
    } finally {
      busy.set(false);
    }
  }

  private static List<CommitLog.StoreId> oldestRetained(Path entry, Configuration conf)
      throws IOException {
    FileSystem fileSystem = entry.getFileSystem(conf);
    long oldest = Long.parseLong(entry.getName());
    for (FileStatus listed : fileSystem.listStatus(entry.getParent())) {
      if (CommitLog.isEntry(listed.getPath())) {
        oldest = Math.min(oldest, Long.parseLong(listed.getPath().getName()));
      }
    }
    try (InputStream in = fileSystem.open(new Path(entry.getParent(), Long.toString(oldest)))) {
      return CommitLog.holdfastIds(in.readAllBytes());
    }
  }
}
