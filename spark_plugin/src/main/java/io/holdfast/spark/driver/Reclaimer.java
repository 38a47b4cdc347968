package io.holdfast.spark.driver;

import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.sparklog.SparkFile;
import java.io.IOException;
import java.util.List;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Deletes merged files that no retained batch needs. Only the driver can decide this, because
 * executors share a file once a partition has moved.
 *
 * <p>Spark removes old entries of the commit log (spark.sql.streaming.minBatchesToRetain). The
 * oldest entry that is left is the oldest batch whose state is needed.
 */
final class Reclaimer {
  private static final Logger LOG = LoggerFactory.getLogger(Reclaimer.class);

  /** One pass over a folder. */
  interface Pass {
    /**
     * Deletes files that neither the oldest retained entry nor any later one needs.
     *
     * @param batch that was published last
     * @param partitions {@code operator/partition} of each id
     * @param ids of the oldest retained entry
     * @return the work done, for the log; empty if there was none
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

  void published(SparkFile entry, Configuration conf) {
    long every = batchesBetween(conf);
    boolean due = entry.number() % every == every - 1;
    // If a pass still runs, this one is skipped, and the next one does its work.
    if (due && busy.compareAndSet(false, true)) {
      worker.execute(() -> run(entry, conf));
    }
  }

  /**
   * Batches between two passes. Each pass lists the folder and reads the index of every new file.
   * Spark's own providers understand these two settings in the same way.
   */
  private static long batchesBetween(Configuration conf) {
    int retained = conf.getInt(HoldfastConf.RETAINED_KEY, HoldfastConf.RETAINED_DEFAULT);
    double extra = conf.getDouble(HoldfastConf.EXTRA_SPACE_KEY, HoldfastConf.EXTRA_SPACE_DEFAULT);
    return Math.max(1, Math.round(retained * extra));
  }

  void stop() {
    worker.shutdownNow();
  }

  private void run(SparkFile entry, Configuration conf) {
    Path state = new Path(entry.checkpoint(), "state");
    try {
      Path log = entry.path().getParent();
      long first = CommitLog.batches(log, conf).min().orElse(entry.number());
      List<CommitLog.StoreId> oldest =
          CommitLog.needed(CommitLog.read(new Path(log, Long.toString(first)), conf));
      String[] partitions =
          oldest.stream().map(CommitLog.StoreId::partition).toArray(String[]::new);
      String[] ids = oldest.stream().map(CommitLog.StoreId::id).toArray(String[]::new);
      SegmentFolder folder = SegmentFolder.of(state.toString(), conf);
      String done = pass.reclaim(folder, entry.number(), partitions, ids);
      if (!done.isEmpty()) {
        LOG.info("Holdfast reclaimed {}: {}", state, done);
      }
    } catch (IOException | RuntimeException e) {
      // Only disk space depends on it, and the next pass tries again.
      LOG.warn("Holdfast could not reclaim files in {}", state, e);
    } finally {
      busy.set(false);
    }
  }
}
