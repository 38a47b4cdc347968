package io.holdfast.spark.moves;

import com.fasterxml.jackson.databind.JsonNode;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.storage.Storages;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.spark.SparkExecutorInfo;
import org.apache.spark.api.java.JavaSparkContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.util.LongAccumulator;
import org.apache.spark.util.SerializableConfiguration;

/** Copies the state of a committed batch into another provider, for the command line. */
public final class StateCopy extends Move {
  private static final String CHANGELOG_KEY =
      "spark.sql.streaming.stateStore.rocksdb.changelogCheckpointing.enabled";

  /** Begins names of folders next to the operators' folders. */
  private static final String SCRATCH = "moving-";

  /** Tenths of a second that a failed command waits for its tasks. */
  private static final int TRIES = 600;

  private record Moved(
      long operator, String name, int partitions, long rows, long bytes, long ms) {}

  private final UUID run = UUID.randomUUID();
  private final Batch base;
  private final List<Operator> operators;
  private final JsonNode ids;
  private final StateStoreConf from;
  private final StateStoreConf to;

  public StateCopy(SparkSession session, Plan plan) throws IOException {
    super(session, plan);
    base = plan.base();
    operators = Operator.read(checkpoint, base.number(), hadoopConf());
    ids = base.ids();
    // A version without changelogs needs no other. A store that only reads would begin one.
    Map<String, String> own = new HashMap<>();
    own.put(CHANGELOG_KEY, "false");
    own.put(HoldfastConf.FORMAT_KEY, base.format());
    from = conf(base.conf(), own);
    own.put(HoldfastConf.FORMAT_KEY, plan.format());
    own.put(HoldfastConf.PROVIDER_KEY, plan.provider());
    to = conf(base.conf(), own);
    for (Operator operator : operators) {
      requirePartitions(operator);
    }
    if (plan.provider().endsWith(".HDFSBackedStateStoreProvider")) {
      operators.forEach(StateCopy::refuseColumns);
    }
    if (plan.format().equals("1")) {
      for (Operator operator : operators) {
        refuseMixed(operator);
      }
    }
  }

  private static void refuseColumns(Operator operator) {
    if (operator.stores().stream().anyMatch(Operator.Store::columns)) {
      throw new UnsupportedStateException(
          String.format(
              "The HDFS-backed provider cannot have the state of operator %d (%s): leave to rocksdb"
                  + " instead.",
              operator.id(), operator.name()));
    }
  }

  /** Spark's providers read the names of all files, and fail on names of the other format. */
  private void refuseMixed(Operator operator) throws IOException {
    Path folder = new Path(checkpoint, "state/" + operator.id() + "/0");
    RemoteIterator<LocatedFileStatus> files =
        folder.getFileSystem(hadoopConf()).listFiles(folder, true);
    while (files.hasNext()) {
      Path file = files.next().getPath();
      if (file.getName().matches("[0-9]+_.*\\.(zip|changelog)")) {
        throw new UnsupportedStateException(
            String.format(
                "%s is of checkpoint format 2, and the provider cannot have files of both formats in"
                    + " a folder. Leave with --format 2, or first delete such files with 'holdfast"
                    + " adopt %s --purge'.",
                file, checkpoint));
      }
    }
  }

  @Override
  public long partitions() throws IOException {
    long sum = 0;
    for (Operator operator : operators) {
      sum += partitionsOf(operator);
    }
    return sum;
  }

  private int partitionsOf(Operator operator) throws IOException {
    return KeyHash.isSingle(operator) ? 1 : base.partitions();
  }

  /**
   * Compares an operator's number of partitions with two independent numbers: of ids in the commit
   * log, and of partitions with files of the version.
   *
   * @throws UnsupportedStateException if they differ, so that a copy would leave state out
   */
  private void requirePartitions(Operator operator) throws IOException {
    int expected = partitionsOf(operator);
    JsonNode own = ids.path(Long.toString(operator.id()));
    if (ids.isObject() && own.size() != expected) {
      throw differs(operator, own.size() + " in the commit log", expected);
    }
    if (from.providerClass().equals(HoldfastConf.PROVIDER_CLASS)) {
      return;
    }
    Path state = new Path(checkpoint, "state/" + operator.id());
    FileSystem files = state.getFileSystem(hadoopConf());
    long[] found = Operator.numbers(files, state).sorted().toArray();
    for (int partition = 0; partition < expected; partition++) {
      if (Arrays.binarySearch(found, partition) < 0) {
        throw differs(operator, "no partition " + partition + " in " + state, expected);
      }
    }
    for (long partition : found) {
      Path folder =
          new StateStoreId(
                  state.getParent().toString(),
                  operator.id(),
                  (int) partition,
                  operator.stores().get(0).name())
              .storeCheckpointLocation();
      if (partition >= expected && hasVersion(files, folder)) {
        throw differs(operator, "state of the batch in " + folder, expected);
      }
    }
  }

  private UnsupportedStateException differs(Operator operator, String found, int expected) {
    return new UnsupportedStateException(
        String.format(
            "Operator %d (%s) of %s has %s, expected %d partitions in batch %d. Nothing was changed."
                + " Run one more batch of the query on its provider, and try again. If that batch"
                + " fails, put the checkpoint back from a copy.",
            operator.id(), operator.name(), checkpoint, found, expected, base.number()));
  }

  /** Older versions may be left over, so looks for a file of the version that is copied. */
  private boolean hasVersion(FileSystem files, Path folder) throws IOException {
    String version = (base.number() + 1) + "[._].*";
    return Storages.list(files, folder).anyMatch(file -> file.getPath().getName().matches(version));
  }

  /** Copies everything, or only reads one partition of each operator. Returns JSON, by operator. */
  public String run(boolean all) throws IOException {
    List<PartitionCopy.Copied> copied = run(tasks(all));
    List<Moved> found = new ArrayList<>();
    Map<Long, List<List<String>>> made = new TreeMap<>();
    for (Operator operator : operators) {
      List<PartitionCopy.Copied> own =
          copied.stream().filter(one -> one.operator() == operator.id()).toList();
      found.add(
          new Moved(
              operator.id(),
              operator.name(),
              partitionsOf(operator),
              own.stream().mapToLong(PartitionCopy.Copied::rows).sum(),
              own.stream().mapToLong(PartitionCopy.Copied::bytes).sum(),
              own.stream().mapToLong(PartitionCopy.Copied::ms).sum()));
      made.put(operator.id(), own.stream().map(PartitionCopy.Copied::ids).toList());
    }
    made(made);
    return JSON.writeValueAsString(found);
  }

  private List<PartitionCopy.Task> tasks(boolean all) throws IOException {
    List<PartitionCopy.Task> tasks = new ArrayList<>();
    for (Operator operator : operators) {
      for (int partition = 0; partition < (all ? partitionsOf(operator) : 1); partition++) {
        tasks.add(task(operator, partition, all ? to : null));
      }
    }
    return tasks;
  }

  private PartitionCopy.Task task(Operator operator, int partition, StateStoreConf target) {
    List<String> own = new ArrayList<>();
    ids.path(Long.toString(operator.id())).path(partition).forEach(id -> own.add(id.asText()));
    Path state = new Path(checkpoint, "state");
    return new PartitionCopy.Task(
        state.toString(),
        operator,
        partition,
        base.number() + 1,
        own.isEmpty() ? null : own.toArray(String[]::new),
        from,
        target,
        plan.number() + 1,
        new Path(state, SCRATCH + run).toString());
  }

  private List<PartitionCopy.Copied> run(List<PartitionCopy.Task> tasks) {
    SerializableConfiguration hadoop = new SerializableConfiguration(hadoopConf());
    // Tasks must not take fields of this object along.
    UUID id = run;
    LongAccumulator ended = partitions;
    LongAccumulator readBytes = bytes;
    return job(
        spark ->
            spark
                .parallelize(tasks, tasks.size())
                .map(
                    task -> {
                      PartitionCopy.Copied copied = new PartitionCopy(task, hadoop, id).copy();
                      ended.add(1);
                      readBytes.add(copied.bytes());
                      return copied;
                    })
                .collect());
  }

  /**
   * Gives its names to state that one of Spark's providers made. They follow from the batch, so the
   * batch has to be planned before. An adoption records the files that exist, for a purge.
   */
  @Override
  void beforeCommit() throws IOException {
    if (to.providerClass().equals(HoldfastConf.PROVIDER_CLASS)) {
      new OldFiles(checkpoint.toString(), plan.number(), hadoopConf()).record();
      return;
    }
    List<PartitionCopy.Task> tasks = tasks(true);
    SerializableConfiguration hadoop = new SerializableConfiguration(hadoopConf());
    JavaSparkContext.fromSparkContext(session.sparkContext())
        .parallelize(tasks, tasks.size())
        .foreach(task -> MadeFiles.move(task, hadoop.value()));
  }

  /** Deletes what this command has written next to the state, after it failed. */
  public void discard() throws IOException, InterruptedException {
    // Tasks that run next to the failed one would write more.
    for (int tries = 0; tries < TRIES && hasTasks(); tries++) {
      Thread.sleep(100);
    }
    Path scratch = new Path(checkpoint, "state/" + SCRATCH + run);
    scratch.getFileSystem(hadoopConf()).delete(scratch, true);
  }

  private boolean hasTasks() {
    SparkExecutorInfo[] executors = session.sparkContext().statusTracker().getExecutorInfos();
    return Arrays.stream(executors).anyMatch(executor -> executor.numRunningTasks() > 0);
  }

  /** Deletes leftovers of this command and of commands that were killed. */
  @Override
  void clean() throws IOException {
    FileSystem files = checkpoint.getFileSystem(hadoopConf());
    for (FileStatus left : files.listStatus(new Path(checkpoint, "state"))) {
      if (left.getPath().getName().startsWith(SCRATCH)) {
        files.delete(left.getPath(), true);
      }
    }
  }
}
