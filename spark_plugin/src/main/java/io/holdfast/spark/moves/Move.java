package io.holdfast.spark.moves;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.executor.HoldfastExecutor;
import io.holdfast.spark.executor.StoreManagers;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.sparklog.PlanEntry;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.function.Function;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.util.LongAccumulator;
import scala.collection.immutable.Map$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A command that publishes a batch without input: makes the state, plans the batch, and commits it.
 * docs/internals/moves.md has the protocol.
 */
public abstract class Move {
  static final ObjectMapper JSON = new ObjectMapper();

  final SparkSession session;
  final Plan plan;
  final Path checkpoint;

  /** Partitions and bytes of rows that are done, for a progress bar. */
  final LongAccumulator partitions;

  final LongAccumulator bytes;
  private SinkLog sink; // null if it is not known

  /** By operator and partition, the ids of the stores with the new state. */
  private Map<Long, List<List<String>>> made;

  Move(SparkSession session, Plan plan) {
    this.session = session;
    this.plan = plan;
    checkpoint = new Path(plan.checkpoint());
    partitions = session.sparkContext().longAccumulator();
    bytes = session.sparkContext().longAccumulator();
  }

  final Configuration hadoopConf() {
    return session.sessionState().newHadoopConf();
  }

  /** Settings of state stores: from the session, from a batch, and others. */
  final StateStoreConf conf(JsonNode settings, Map<String, String> own) {
    SQLConf conf = session.sessionState().conf().clone();
    for (Map.Entry<String, JsonNode> setting : settings.properties()) {
      conf.setConfString(setting.getKey(), setting.getValue().asText());
    }
    own.forEach(conf::setConfString);
    return new StateStoreConf(conf, Map$.MODULE$.empty());
  }

  final <T> T job(Function<JavaSparkContext, T> job) {
    JavaSparkContext spark = JavaSparkContext.fromSparkContext(session.sparkContext());
    // Holdfast's provider takes a task without it for a task of a state reader.
    spark.setLocalProperty(HoldfastConf.BATCH_ID_KEY, Long.toString(plan.number()));
    try {
      return job.apply(spark);
    } finally {
      spark.setLocalProperty(HoldfastConf.BATCH_ID_KEY, null);
    }
  }

  public abstract long partitions() throws IOException;

  public final long donePartitions() {
    return partitions.sum();
  }

  public final long doneBytes() {
    return bytes.sum();
  }

  /** The commit then adds the batch to the log of the query's sink. */
  public final void sink(SinkLog log) {
    sink = log;
  }

  /** Gives this application a term above the query's terms, which a commit needs. */
  final void takeOver(StateStoreConf conf) {
    String state = new Path(checkpoint, "state").toString();
    HoldfastConf own = new HoldfastConf(CollectionConverters.asJava(conf.sqlConfs()));
    StoreManagers stores = HoldfastExecutor.running().stores();
    stores.limitMemory(own);
    stores.acquire(SegmentFolder.of(state, hadoopConf()), own, UUID.randomUUID()).close();
  }

  final void made(Map<Long, List<List<String>>> ids) {
    made = ids;
  }

  /** Plans the batch. Returns false, with no visible change, if a query has planned another one. */
  public final boolean plan() throws IOException {
    String planned = plan.planned();
    Path entry = Batch.entry(checkpoint, "offsets", plan.number());
    boolean own =
        create(entry, planned)
            || Batch.plan(checkpoint, plan.number(), hadoopConf()).says(PlanEntry.of(planned));
    // The query may have continued, so that Spark deleted an entry of this number.
    if (own && CommitLog.newestBatch(entry.getParent(), hadoopConf()) == plan.number()) {
      return true;
    }
    clean();
    return false;
  }

  /** Returns false if the same command has committed it elsewhere. */
  public final boolean commit() throws IOException {
    Path entry = Batch.entry(checkpoint, "commits", plan.number());
    boolean first = !entry.getFileSystem(hadoopConf()).exists(entry);
    if (sink != null) {
      // The batch is planned, so no query gives rows of it to the sink.
      sink.complete(plan.number());
    }
    if (first) {
      beforeCommit();
      first = create(entry, plan.repeated().committed(plan.format(), made));
    }
    clean();
    return first;
  }

  /** Completes the state of the batch, which is planned. */
  abstract void beforeCommit() throws IOException;

  /** Deletes files that are in no checkpoint. */
  abstract void clean() throws IOException;

  /** Creates a file durably. An entry of the commit log makes its state durable, too. */
  private boolean create(Path file, String text) throws IOException {
    try {
      create(file, text, false);
      return true;
    } catch (FileAlreadyExistsException e) {
      return false;
    }
  }

  final void create(Path file, String text, boolean replace) throws IOException {
    Configuration conf = hadoopConf();
    conf.set(HoldfastConf.FILE_MANAGER_KEY, HoldfastConf.FILE_MANAGER_CLASS);
    CancellableFSDataOutputStream out =
        CheckpointFileManager.create(file.getParent(), conf).createAtomic(file, replace);
    try {
      out.write(text.getBytes(StandardCharsets.UTF_8));
      out.close();
    } catch (IOException | RuntimeException e) {
      out.cancel();
      throw e;
    }
  }
}
