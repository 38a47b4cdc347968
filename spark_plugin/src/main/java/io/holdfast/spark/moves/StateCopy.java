package io.holdfast.spark.moves;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastCheckpointFileManager;
import io.holdfast.spark.storage.AtomicStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.internal.SQLConf;
import org.apache.spark.util.LongAccumulator;
import org.apache.spark.util.SerializableConfiguration;
import scala.collection.immutable.Map$;

/** Copies the state of a committed batch into another provider. The command line calls it. */
public final class StateCopy {
  private static final ObjectMapper JSON = new ObjectMapper();

  private final SparkSession session;
  private final Path checkpoint;
  private final long batch;
  private final List<Operator> operators;
  private final JsonNode ids;
  private final StateStoreConf from;
  private final StateStoreConf to;
  private final LongAccumulator partitions;
  private final LongAccumulator bytes;

  /**
   * @param batch the newest committed batch
   * @param settings those that its entry of the offset log has, as JSON
   * @param committed its entry of the commit log, without the version
   * @param provider the class that gets the state
   */
  public StateCopy(
      SparkSession session,
      String checkpoint,
      long batch,
      String settings,
      String committed,
      String provider)
      throws IOException {
    this.session = session;
    this.checkpoint = new Path(checkpoint);
    this.batch = batch;
    operators = Operator.read(this.checkpoint, batch, hadoopConf());
    ids = JSON.readTree(committed).path("stateUniqueIds");
    from = conf(settings, Map.of(HoldfastConf.FORMAT_KEY, ids.isObject() ? "2" : "1"));
    to =
        conf(
            settings,
            Map.of(HoldfastConf.PROVIDER_KEY, provider, HoldfastConf.FORMAT_KEY, "2"));
    partitions = session.sparkContext().longAccumulator();
    bytes = session.sparkContext().longAccumulator();
  }

  private Configuration hadoopConf() {
    return session.sessionState().newHadoopConf();
  }

  private StateStoreConf conf(String settings, Map<String, String> own) throws IOException {
    SQLConf conf = session.sessionState().conf().clone();
    for (Map.Entry<String, JsonNode> setting : JSON.readTree(settings).properties()) {
      conf.setConfString(setting.getKey(), setting.getValue().asText());
    }
    own.forEach(conf::setConfString);
    return new StateStoreConf(conf, Map$.MODULE$.empty());
  }

  /** Partitions of all operators. */
  public long partitions() {
    return operators.stream().mapToLong(Operator::partitions).sum();
  }

  public long copiedPartitions() {
    return partitions.sum();
  }

  public long copiedBytes() {
    return bytes.sum();
  }

  /**
   * Copies everything, or only reads one partition of each operator. The result is JSON, by
   * operator, with the ids of the new state by partition.
   */
  public String run(boolean all) throws IOException {
    List<PartitionCopy.Task> tasks = new ArrayList<>();
    for (Operator operator : operators) {
      for (int partition = 0; partition < (all ? operator.partitions() : 1); partition++) {
        tasks.add(task(operator, partition, all ? to : null));
      }
    }
    List<PartitionCopy.Copied> copied = run(tasks);
    List<Map<String, Object>> found = new ArrayList<>();
    for (Operator operator : operators) {
      List<PartitionCopy.Copied> own =
          copied.stream().filter(one -> one.operator() == operator.id()).toList();
      Map<String, Object> shown = new LinkedHashMap<>();
      shown.put("operator", operator.id());
      shown.put("name", operator.name());
      shown.put("partitions", operator.partitions());
      shown.put("rows", own.stream().mapToLong(PartitionCopy.Copied::rows).sum());
      shown.put("bytes", own.stream().mapToLong(PartitionCopy.Copied::bytes).sum());
      shown.put("ms", own.stream().mapToLong(PartitionCopy.Copied::ms).sum());
      shown.put("ids", own.stream().map(PartitionCopy.Copied::ids).toList());
      found.add(shown);
    }
    return JSON.writeValueAsString(found);
  }

  private PartitionCopy.Task task(Operator operator, int partition, StateStoreConf target) {
    List<String> own = new ArrayList<>();
    ids.path(Long.toString(operator.id()))
        .path(partition)
        .forEach(id -> own.add(id.asText()));
    return new PartitionCopy.Task(
        new Path(checkpoint, "state").toString(),
        operator,
        partition,
        batch + 1,
        own.isEmpty() ? null : own.toArray(String[]::new),
        from,
        target);
  }

  private List<PartitionCopy.Copied> run(List<PartitionCopy.Task> tasks) {
    JavaSparkContext spark = JavaSparkContext.fromSparkContext(session.sparkContext());
    SerializableConfiguration hadoop = new SerializableConfiguration(hadoopConf());
    UUID run = UUID.randomUUID();
    LongAccumulator ended = partitions;
    LongAccumulator readBytes = bytes;
    // Holdfast's provider takes a task without it for one of a state reader.
    spark.setLocalProperty(HoldfastConf.BATCH_ID_KEY, Long.toString(batch + 1));
    try {
      return spark
          .parallelize(tasks, tasks.size())
          .map(
              task -> {
                PartitionCopy.Copied copied = new PartitionCopy(task, hadoop.value(), run).copy();
                ended.add(1);
                readBytes.add(copied.bytes());
                return copied;
              })
          .collect();
    } finally {
      spark.setLocalProperty(HoldfastConf.BATCH_ID_KEY, null);
    }
  }

  /**
   * Creates an entry of {@code offsets} or {@code commits}, durably and with the state that it
   * names. Returns false if there is one.
   */
  public boolean publish(String log, long number, String entry) throws IOException {
    Path file = new Path(new Path(checkpoint, log), Long.toString(number));
    HoldfastCheckpointFileManager files =
        new HoldfastCheckpointFileManager(file.getParent(), hadoopConf());
    AtomicStream out = files.createAtomic(file, false);
    try {
      out.write(entry.getBytes(StandardCharsets.UTF_8));
      out.close();
      return true;
    } catch (FileAlreadyExistsException e) {
      return false;
    } finally {
      out.cancel();
    }
  }
}
