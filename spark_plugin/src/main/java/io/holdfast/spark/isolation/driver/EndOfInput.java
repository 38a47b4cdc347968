package io.holdfast.spark.isolation.driver;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.sparklog.CommitLog;
import java.io.IOException;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecutionContext;
import org.apache.spark.sql.execution.streaming.runtime.MultiBatchExecutor;
import org.apache.spark.sql.execution.streaming.runtime.SingleBatchExecutor;
import org.apache.spark.sql.execution.streaming.runtime.TriggerExecutor;
import scala.Function1;

/**
 * Spark's trigger of a query that ends after one batch, or when its input is used up. Pending rows
 * then end it with an error, because there is no later batch.
 */
public final class EndOfInput extends MultiBatchExecutor {
  private static final long serialVersionUID = 1L;
  private final boolean once; // the query ends after one batch

  private final Path checkpoint;
  private final transient Configuration conf;

  private EndOfInput(boolean once, Path checkpoint, Configuration conf) {
    this.once = once;
    this.checkpoint = checkpoint;
    this.conf = conf;
  }

  /** Watches this thread's query. Spark calls its trigger after it looked for the last plan. */
  public static void watch(SparkContext spark, Path checkpoint, Configuration conf) {
    MicroBatchExecution batches = queryOfThread(spark);
    if (batches == null || !HoldfastConf.isolatesFailures(conf::get)) {
      return;
    }
    TriggerExecutor trigger = batches.triggerExecutor();
    boolean once = trigger instanceof SingleBatchExecutor;
    if (once || trigger instanceof MultiBatchExecutor && !(trigger instanceof EndOfInput)) {
      batches.triggerExecutor_$eq(new EndOfInput(once, checkpoint, conf));
    }
  }

  /** The query that the calling thread runs in micro-batches; null without one. */
  public static MicroBatchExecution queryOfThread(SparkContext spark) {
    String id = spark.getLocalProperty(HoldfastConf.QUERY_ID_KEY);
    Object query =
        id == null
            ? null
            : SparkSession.active()
                .sharedState()
                .activeStreamingQueries()
                .get(UUID.fromString(id));
    return query instanceof MicroBatchExecution batches ? batches : null;
  }

  @Override
  public void execute(Function1<MicroBatchExecutionContext, Object> batch) {
    if (once) {
      runOneBatch(batch);
    } else {
      super.execute(batch);
    }
    String parked;
    try {
      parked = parked();
    } catch (IOException e) {
      throw new HoldfastException("Cannot read what is parked in " + checkpoint, e);
    }
    if (!parked.isEmpty()) {
      throw new HoldfastException(
          String.format(
              "The query ends, and rows are parked in %1$s: %2$s. Repair the program and start"
                  + " the query again: the rows come with its next batch, which needs new input."
                  + " `holdfast parked %1$s` shows them.",
              checkpoint, parked));
    }
  }

  /** The parked partitions; empty without any. */
  private String parked() throws IOException {
    Machine machine = Machine.ofPartitions("", checkpoint, conf);
    Path newest = machine.batches.isEmpty() ? null : CommitLog.newest(checkpoint, conf);
    if (newest == null) {
      return "";
    }
    Map<String, String> parked = new TreeMap<>();
    for (CommitLog.StoreId store : CommitLog.needed(CommitLog.read(newest, conf))) {
      long[] versions = Native.pendingVersions(store.id());
      if (versions.length > 0) {
        long since = versions[0] - 1;
        int partition = Integer.parseInt(store.partition().split("/")[1]);
        Marker marker = machine.marker(since);
        parked.putIfAbsent(
            store.partition(),
            String.format(
                "partition %d of operator %s since batch %d (%s)",
                partition,
                store.operator(),
                since,
                marker == null ? "its marker is gone" : marker.parked().get(partition).error()));
      }
    }
    return String.join("; ", parked.values());
  }
}
