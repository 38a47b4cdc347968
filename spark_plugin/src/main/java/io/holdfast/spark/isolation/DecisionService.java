package io.holdfast.spark.isolation;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest.Attempt;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import io.holdfast.spark.rpc.DriverRequest;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.TimeUnit;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.Success$;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerStageCompleted;
import org.apache.spark.scheduler.SparkListenerStageSubmitted;
import org.apache.spark.scheduler.SparkListenerTaskEnd;
import org.apache.spark.scheduler.SparkListenerTaskStart;
import org.apache.spark.scheduler.TaskInfo;
import org.apache.spark.storage.RDDInfo;
import org.apache.spark.util.CollectionAccumulator;
import org.apache.spark.util.SerializableConfiguration;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Decides on the driver what becomes of a partition whose task fails. It counts failures over all
 * stage attempts, from what Spark's scheduler reports of every task.
 */
public final class DecisionService {
  /** How long a decision waits for events that Spark posted before. */
  private static final long EVENTS_S = 30;

  private final SparkContext spark;
  private final Supplier<String> queryOfThread;

  /** By checkpoint, the run that works on it. */
  private final Map<Path, QueryRun> runs = new HashMap<>();

  /** By path of a checkpoint, the newest batch that its newest run planned itself. */
  private final Map<String, Long> planned = new ConcurrentHashMap<>();

  private final Map<GuardKey, GuardedBatch> guards = new ConcurrentHashMap<>();

  /** By stage that has run, its guard. */
  private final Map<Integer, GuardedBatch> guardedStages = new ConcurrentHashMap<>();

  private boolean listens;

  /** By id of a query, the run whose plan was made last. */
  private final Map<String, QueryRun> planning = new ConcurrentHashMap<>();

  /**
   * @param queryOfThread the id of the query that the calling thread runs, or null
   */
  public DecisionService(SparkContext spark, Supplier<String> queryOfThread) {
    this.spark = spark;
    this.queryOfThread = queryOfThread;
  }

  /** A query starts. It may go on with a batch that an earlier run planned. */
  public void starting(Path checkpoint) {
    planning(checkpoint, -1);
  }

  /** A query, which this thread runs, looks for the newest plan. */
  public void initializing(Path checkpoint, Configuration conf) {
    EndOfInput.watch(spark, checkpoint, conf);
  }

  /** A query plans a batch. */
  public void planning(Path checkpoint, long batch) {
    planned.put(checkpoint.toUri().getPath(), batch);
  }

  /**
   * The operators of this thread's query make metrics of parked partitions from now on. {@link
   * QueryRun#showsMetrics} takes them out of the progress if nothing is parked.
   */
  void offerMetrics(QueryRun run) {
    String query = queryOfThread.get();
    if (query != null) {
      run.showsMetrics = true;
      planning.put(query, run);
    }
  }

  /** Returns whether operators of this thread's query have metrics of parked partitions now. */
  public boolean showsMetrics() {
    String query = queryOfThread.get();
    QueryRun run = query == null ? null : planning.get(query);
    return run != null && run.showsMetrics;
  }

  /** When the first partition was parked in a batch of a query. */
  long parkedAtMs(String query, long batch) {
    return planning.get(query).marker(batch).parked().values().stream()
        .filter(parked -> !parked.waits().isEmpty())
        .mapToLong(Marker.Parked::atMs)
        .min()
        .orElse(0);
  }

  /** Returns whether an earlier run may have reached the sink with the batch. */
  boolean isRerun(Path checkpoint, long batch) {
    return planned.getOrDefault(checkpoint.toUri().getPath(), -1L) != batch;
  }

  synchronized QueryRun run(UUID id, Path checkpoint, Supplier<Configuration> conf) {
    QueryRun run = runs.get(checkpoint);
    if (run == null || !run.id.equals(id)) {
      run = new QueryRun(id, checkpoint, conf.get());
      runs.put(checkpoint, run);
    }
    return run;
  }

  /** The guard of a batch. A new one ends those of the batches before. */
  synchronized GuardedBatch guard(GuardKey key, Supplier<GuardedBatch> fresh) {
    if (!listens) {
      // A queue of its own: no other listener can hold it up.
      spark.listenerBus().addToQueue(new Attempts(), "holdfast");
      listens = true;
    }
    if (!guards.containsKey(key)) {
      guards
          .values()
          .removeIf(old -> old.key.run().equals(key.run()) || !runs.containsValue(old.run));
      guardedStages.values().removeIf(old -> !guards.containsValue(old));
      guards.put(key, fresh.get());
    }
    return guards.get(key);
  }

  /** The sink of a batch is about to commit. */
  void seal(GuardKey key) {
    GuardedBatch guard = guards.get(key);
    if (guard == null) {
      throw new HoldfastException("The query has gone on without " + key);
    }
    // A failure that Spark reports later opens no marker: the batch is sealed already.
    guard.seal();
  }

  /** The answer to a task that asks whether it parks its partition. */
  public DriverReply decide(DriverRequest.Decide asked) {
    GuardedBatch guard = guards.get(asked.guard());
    if (guard == null) {
      return new DriverReply.Refused("The query has gone on without task " + asked.attempt());
    }
    // A stage that Spark submits from now on has the partition among those that ask.
    guard.suspects.add(asked.partition());
    try {
      if (!awaitEvents()) {
        return new DriverReply.Refused(
            String.format(
                "Spark's listeners are more than %d s behind, so it is unknown which attempts run"
                    + " beside %s",
                EVENTS_S, asked.attempt()));
      }
      GuardedBatch.Answer answer =
          guard.answer(
              asked.attempt(),
              asked.partition(),
              asked.id(),
              task -> spark.killTaskAttempt(task, true, "another attempt parks its partition"));
      Configuration conf = new Configuration(guard.run.conf);
      conf.set(HoldfastConf.RUN_ID_KEY, guard.key.run().toString());
      return new DriverReply.Decision(
          KeyGroups.share(answer.waits()) == 1,
          answer.waits(),
          answer.still(),
          answer.settles(),
          answer.failure(),
          new SerializableConfiguration(conf));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return new DriverReply.Refused("The driver was interrupted");
    }
  }

  /** A task is through with a partition. */
  public DriverReply settle(DriverRequest.Settle settled) {
    GuardedBatch guard = guards.get(settled.guard());
    if (guard == null) {
      return new DriverReply.Refused("The query has gone on without task " + settled.attempt());
    }
    try {
      guard.settle(settled.attempt(), settled.partition());
      return new DriverReply.Done();
    } catch (HoldfastException e) {
      return new DriverReply.Refused(e.getMessage());
    }
  }

  /** Receives partitions from tasks whose result Spark takes. */
  CollectionAccumulator<Integer> accumulator() {
    return spark.collectionAccumulator();
  }

  /** Waits until every event that Spark has posted is counted; false if that takes too long. */
  private boolean awaitEvents() throws InterruptedException {
    CountDownLatch seen = new CountDownLatch(1);
    spark.listenerBus().post(new Posted(seen));
    return seen.await(EVENTS_S, TimeUnit.SECONDS);
  }

  private record Posted(CountDownLatch seen) implements SparkListenerEvent {
    @Override
    public boolean logEvent() {
      return false;
    }
  }

  private final class Attempts extends SparkListener {
    @Override
    public void onStageSubmitted(SparkListenerStageSubmitted event) {
      int stage = event.stageInfo().stageId();
      List<RDDInfo> rdds = CollectionConverters.asJava(event.stageInfo().rddInfos());
      guards.values().stream()
          .filter(guard -> rdds.stream().anyMatch(rdd -> guard.rdds.contains(rdd.id())))
          .forEach(
              guard -> {
                guardedStages.put(stage, guard);
                guard.stageBegan(stage, rdds.get(0).numPartitions());
              });
    }

    @Override
    public void onStageCompleted(SparkListenerStageCompleted event) {
      GuardedBatch guard = guardedStages.get(event.stageInfo().stageId());
      if (guard != null) {
        guard.stageEnded(event.stageInfo().stageId());
      }
    }

    @Override
    public void onTaskStart(SparkListenerTaskStart event) {
      GuardedBatch guard = guardedStages.get(event.stageId());
      if (guard != null) {
        guard.began(
            attempt(event.stageId(), event.stageAttemptId(), event.taskInfo()),
            event.taskInfo().taskId());
      }
    }

    @Override
    public void onTaskEnd(SparkListenerTaskEnd event) {
      GuardedBatch guard = guardedStages.get(event.stageId());
      if (guard != null) {
        guard.ended(
            attempt(event.stageId(), event.stageAttemptId(), event.taskInfo()),
            event.reason() == Success$.MODULE$,
            Failures.text(event.reason()));
      }
    }

    @Override
    public void onOtherEvent(SparkListenerEvent event) {
      if (event instanceof Posted posted) {
        posted.seen.countDown();
      }
    }
  }

  private static Attempt attempt(int stage, int stageAttempt, TaskInfo task) {
    return new Attempt(stage, stageAttempt, task.partitionId(), task.attemptNumber());
  }
}
