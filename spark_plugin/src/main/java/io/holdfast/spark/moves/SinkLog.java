package io.holdfast.spark.moves;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.sparklog.QueryLog;
import io.holdfast.spark.sparklog.SparkFile;
import io.holdfast.spark.storage.Storages;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.SparkSession$;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution;
import org.apache.spark.sql.execution.streaming.sinks.FileStreamSink;
import org.apache.spark.sql.execution.streaming.sinks.FileStreamSinkLog;
import org.apache.spark.sql.execution.streaming.sinks.SinkFileStatus;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;

/**
 * The log of Spark's file sink, {@code <output>/_spark_metadata}, needs an entry for every batch of
 * the query. A command's batch never reaches the sink, so it gets an empty entry here.
 */
public final class SinkLog {
  private static final Logger LOG = LoggerFactory.getLogger(SinkLog.class);

  private static final String INTERVAL_KEY = "spark.sql.streaming.fileSink.log.compactInterval";

  private final SparkSession session;
  private final Configuration conf;
  private final Path checkpoint;
  private final Path folder;
  private final boolean ofQuery; // the session has the query's interval of compactions

  public SinkLog(SparkSession session, String checkpoint, String output) {
    this(session, checkpoint, output, false);
  }

  private SinkLog(SparkSession session, String checkpoint, String output, boolean ofQuery) {
    this.session = session;
    this.ofQuery = ofQuery;
    this.conf = session.sessionState().newHadoopConf();
    this.checkpoint = new Path(checkpoint);
    folder = new Path(output, FileStreamSink.metadataDir());
  }

  /**
   * Refuses an output that is not the query's. A killed command's batch may follow {@code newest},
   * the newest committed batch.
   */
  public void check(long newest) throws IOException {
    List<SparkFile> entries = entries();
    long last = newest(entries);
    if (last < 0) {
      throw new UnsupportedStateException(
          String.format(
              "%s has no entry, so Spark's file sink did not write there. Give the folder that the"
                  + " query writes, or leave out --output if the query has another sink.",
              folder));
    }
    if (last > newest && !(last == newest + 1 && isMove(last))) {
      throw new UnsupportedStateException(
          String.format(
              "%s ends at batch %d, and the query at batch %d. It is the output of another query, or"
                  + " the checkpoint is an old copy.",
              folder, last, newest));
    }
    for (long batch : lacking(entries, newest)) {
      if (!isMove(batch)) {
        throw new UnsupportedStateException(
            String.format(
                "%s lacks the entry of batch %d. It is the output of another query, or the entry was"
                    + " deleted.",
                folder, batch));
      }
    }
  }

  /** The number of missing entries, up to a batch. */
  public int lacking(long last) throws IOException {
    return lacking(entries(), last).size();
  }

  /** Writes missing entries of moves, up to a batch; returns their number. */
  public int complete(long last) throws IOException {
    int written = 0;
    List<SparkFile> entries = entries();
    for (long batch : lacking(entries, last)) {
      if (isMove(batch)) {
        write(batch, entries);
        written++;
      }
    }
    return written;
  }

  /**
   * Completes the log of the query on this thread, before its first batch. A command that was not
   * told of the output leaves that to the query.
   */
  public static void atStart(Path checkpoint, Configuration conf) throws IOException {
    SparkSession session = SparkSession$.MODULE$.getActiveSession().get();
    String id = session.sparkContext().getLocalProperty(HoldfastConf.QUERY_ID_KEY);
    StreamExecution query =
        id == null ? null : session.sharedState().activeStreamingQueries().get(UUID.fromString(id));
    // The code of a query may read another checkpoint.
    if (query == null
        || !(query.sink() instanceof FileStreamSink sink)
        || !QueryLog.isOf(id, checkpoint, conf)) {
      return;
    }
    String shown = sink.toString();
    String output = shown.substring(shown.indexOf('[') + 1, shown.length() - 1);
    long last = CommitLog.newestBatch(new Path(checkpoint, "commits"), conf);
    SinkLog log = new SinkLog(session, checkpoint.toString(), output, true);
    Path parent = new Path(checkpoint, "state/" + HoldfastConf.STATE_FOLDER + "/parent");
    if (parent.getFileSystem(conf).exists(parent)) {
      log.beginBranch(last);
    }
    int written = log.complete(last);
    if (written > 0) {
      LOG.info("Added {} entries of batches without input to the sink's log in {}", written, output);
    }
  }

  /** Lets the log of a new output begin with a branch, after its last batch {@code last}. */
  private void beginBranch(long last) throws IOException {
    List<SparkFile> entries = entries();
    if (entries.isEmpty()) {
      // A compaction covers all earlier batches, which this log never had.
      Path compaction = new Path(folder, last + ".compact");
      CancellableFSDataOutputStream out =
          CheckpointFileManager.create(folder, conf).createAtomic(compaction, false);
      out.write(("v" + FileStreamSinkLog.VERSION()).getBytes(StandardCharsets.UTF_8));
      out.close();
    } else if (newest(entries) > last + 1) {
      throw new UnsupportedStateException(
          String.format(
              "%s ends at batch %d, and the branch %s at batch %d. It is the output of another"
                  + " query, and Spark would skip batches of this one. Give the branch an output"
                  + " folder of its own.",
              folder, newest(entries), QueryLog.shown(checkpoint.toString()), last));
    }
  }

  private void write(long batch, List<SparkFile> entries) throws IOException {
    SparkSession own = session.cloneSession();
    boolean known = ofQuery || newest(entries) > batch;
    if (!known && entries.stream().noneMatch(SinkLog::isCompact)) {
      // The log does not show its interval yet. A first compaction fits every interval.
      own.sessionState().conf().setConfString(INTERVAL_KEY, Long.toString(batch + 1));
    }
    new FileStreamSinkLog(FileStreamSinkLog.VERSION(), own, folder.toString(), Option.empty())
        .add(batch, new SinkFileStatus[0]);
  }

  /** The batches without an entry after the newest compaction, which covers all earlier batches. */
  private static List<Long> lacking(List<SparkFile> entries, long last) {
    Set<Long> there = entries.stream().map(SparkFile::number).collect(Collectors.toSet());
    long begin = newest(entries.stream().filter(SinkLog::isCompact).toList());
    List<Long> lacking = new ArrayList<>();
    for (long batch = begin + 1; !there.isEmpty() && batch <= last; batch++) {
      if (!there.contains(batch)) {
        lacking.add(batch);
      }
    }
    return lacking;
  }

  private boolean isMove(long batch) throws IOException {
    try {
      return Batch.plan(checkpoint, batch, conf).conf().has(HoldfastConf.MOVE_KEY);
    } catch (FileNotFoundException deleted) {
      return false;
    }
  }

  private List<SparkFile> entries() throws IOException {
    return Storages.list(folder.getFileSystem(conf), folder)
        .map(status -> SparkFile.of(status.getPath()))
        .filter(SparkFile::isEntry)
        .toList();
  }

  private static long newest(List<SparkFile> entries) {
    return entries.stream().mapToLong(SparkFile::number).max().orElse(-1);
  }

  private static boolean isCompact(SparkFile entry) {
    return entry.path().getName().endsWith(".compact");
  }
}
