package io.holdfast.spark.moves;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.HoldfastCheckpointFileManager;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.sparklog.PlanEntry;
import io.holdfast.spark.storage.AtomicStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.util.LongAccumulator;
import scala.collection.immutable.Map$;

/**
 * A command that publishes a batch without input: it makes the state, plans the batch, and commits
 * it. docs/internals/moves.md has the protocol.
 */
public abstract class Move {
  static final ObjectMapper JSON = new ObjectMapper();

  final SparkSession session;
  final Path checkpoint;
  final Batch newest;

  /** Partitions and bytes of rows that are done, for a progress bar. */
  final LongAccumulator partitions;

  final LongAccumulator bytes;

  private final Map<String, String> changes;
  private final String format;

  /** The log of the query's sink; null if it is not known. */
  private SinkLog sink;

  /** By operator and partition, the ids of the stores with the new state. */
  private Map<Long, List<List<String>>> made;

  /**
   * @param newest the batch before the one that is published
   * @param changes settings of the batch that the one before does not have
   * @param format the checkpoint format of the new state
   */
  Move(
      SparkSession session,
      String checkpoint,
      Batch newest,
      Map<String, String> changes,
      String format) {
    this.session = session;
    this.checkpoint = new Path(checkpoint);
    this.newest = newest;
    this.changes = changes;
    this.format = format;
    partitions = session.sparkContext().longAccumulator();
    bytes = session.sparkContext().longAccumulator();
  }

  final Configuration hadoopConf() {
    return session.sessionState().newHadoopConf();
  }

  /**
   * Settings of state stores: those of the session, of a batch, and others.
   *
   * @param settings of the batch
   */
  final StateStoreConf conf(JsonNode settings, Map<String, String> own) {
    SQLConf conf = session.sessionState().conf().clone();
    for (Map.Entry<String, JsonNode> setting : settings.properties()) {
      conf.setConfString(setting.getKey(), setting.getValue().asText());
    }
    own.forEach(conf::setConfString);
    return new StateStoreConf(conf, Map$.MODULE$.empty());
  }

  /** The number of the batch that is published. */
  final long number() {
    return newest.number() + 1;
  }

  /** Partitions that are made. */
  public abstract long partitions() throws IOException;

  public final long donePartitions() {
    return partitions.sum();
  }

  public final long doneBytes() {
    return bytes.sum();
  }

  /** Lets the commit add the batch to the log of the query's sink. */
  public final void sink(SinkLog log) {
    sink = log;
  }

  final void made(Map<Long, List<List<String>>> ids) {
    made = ids;
  }

  /**
   * Plans the batch. Returns false, and has changed nothing that a query sees, if a query has planned
   * another one.
   */
  public final boolean plan() throws IOException {
    String planned = newest.planned(changes);
    Path entry = Batch.entry(checkpoint, "offsets", number());
    boolean own =
        create(entry, planned)
            || Batch.plan(checkpoint, number(), hadoopConf()).says(PlanEntry.of(planned));
    // Spark may have deleted an entry of this number, behind which the query has gone on.
    if (own && CommitLog.newestBatch(entry.getParent(), hadoopConf()) == number()) {
      return true;
    }
    clean();
    return false;
  }

  /** Commits the batch. Returns false if the same command has committed it elsewhere. */
  public final boolean commit() throws IOException {
    Path entry = Batch.entry(checkpoint, "commits", number());
    boolean first = !entry.getFileSystem(hadoopConf()).exists(entry);
    if (sink != null) {
      // The batch is planned, so no query gives rows of it to the sink.
      sink.complete(number());
    }
    if (first) {
      beforeCommit();
      first = create(entry, newest.committed(format, made));
    }
    clean();
    return first;
  }

  /** Completes the state of the batch, which is planned. */
  abstract void beforeCommit() throws IOException;

  /** Deletes files that are in no checkpoint. */
  abstract void clean() throws IOException;

  /** Creates a file durably. An entry of the commit log takes its state along. */
  private boolean create(Path file, String text) throws IOException {
    try {
      create(file, text, false);
      return true;
    } catch (FileAlreadyExistsException e) {
      return false;
    }
  }

  final void create(Path file, String text, boolean replace) throws IOException {
    AtomicStream out =
        new HoldfastCheckpointFileManager(file.getParent(), hadoopConf())
            .createAtomic(file, replace);
    try {
      out.write(text.getBytes(StandardCharsets.UTF_8));
      out.close();
    } catch (IOException | RuntimeException e) {
      out.cancel();
      throw e;
    }
  }
}
