package io.holdfast.spark.isolation.driver;

import com.fasterxml.jackson.databind.util.RawValue;
import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.rpc.DriverRequest.Attempt;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import io.holdfast.spark.rpc.DriverRequest.Part;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Consumer;
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
import org.apache.spark.scheduler.TaskSchedulerImpl;
import org.apache.spark.storage.RDDInfo;
import scala.jdk.javaapi.CollectionConverters;

/** Tells the machines of all runs about every task: reports of Spark's scheduler, and questions. */
public final class DecisionService {
  /** Says why failures of tasks cannot be handled, if {@link #failuresMax} is 1. */
  public static final String ONE_ATTEMPT =
      "a task has one attempt; set spark.task.maxFailures, or local[n,4] as the master";

  /** A decision waits so long for events that Spark posted before. */
  private static final long EVENTS_S = 30;

  private final SparkContext spark;
  private final SparkEvents events;
  private final Supplier<String> queryOfThread;
  private final Map<Path, QueryRun> runs = new HashMap<>(); // by folder of markers

  /** By path of a checkpoint, the newest batch that its newest run planned itself. */
  private final Map<String, Long> planned = new ConcurrentHashMap<>();

  private final Map<GuardKey, Guarded> guards = new ConcurrentHashMap<>();

  /** By stage of Spark that has run, its operator. */
  private final Map<Integer, Guarded> guardedStages = new ConcurrentHashMap<>();

  private boolean listens;

  /** By id of a query, the run whose plan was made last. */
  private final Map<String, QueryRun> planning = new ConcurrentHashMap<>();

  private final Executor writers =
      Executors.newCachedThreadPool(DaemonThreads.named("holdfast-markers"));

  /** A guarded operator in one batch. */
  private record Guarded(QueryRun run, SparkSide side) {
    void tell(Object fact) {
      run.tell(side, fact);
    }
  }

  /** {@code queryOfThread} is the id of the query that the calling thread runs, or null. */
  public DecisionService(SparkContext spark, Supplier<String> queryOfThread) {
    this.spark = spark;
    events = new SparkEvents(spark);
    this.queryOfThread = queryOfThread;
  }

  /** Failures of a task after which Spark ends the query. */
  public int failuresMax() {
    return spark.taskScheduler() instanceof TaskSchedulerImpl tasks ? tasks.maxTaskFailures() : 1;
  }

  /** Called before a query starts. It may continue a batch that an earlier run planned. */
  public void starting(Path checkpoint) {
    planning(checkpoint, -1);
  }

  /** Called on a query's thread, when it looks for the newest plan. */
  public void initializing(Path checkpoint, Configuration conf) {
    EndOfInput.watch(spark, checkpoint, conf);
  }

  public void planning(Path checkpoint, long batch) {
    planned.put(checkpoint.toUri().getPath(), batch);
  }

  /**
   * The operators of this thread's query make metrics of parked partitions from now on. {@link
   * QueryRun#showsMetrics} removes them from the progress if nothing is parked.
   */
  public void offerMetrics(QueryRun run) {
    String query = queryOfThread.get();
    if (query != null) {
      run.showsMetrics = true;
      planning.put(query, run);
    }
  }

  /** Returns true if this thread's operators have metrics of parked partitions now. */
  public boolean showsMetrics() {
    String query = queryOfThread.get();
    QueryRun run = query == null ? null : planning.get(query);
    return run != null && run.showsMetrics;
  }

  /** When the first partition was parked in a batch of a query. */
  public long parkedAtMs(String query, long batch) {
    return planning.get(query).parkedAtMs(batch);
  }

  /** Returns true if an earlier run may have reached the sink with the batch. */
  public boolean isRerun(Path checkpoint, long batch) {
    return planned.getOrDefault(checkpoint.toUri().getPath(), -1L) != batch;
  }

  /**
   * Returns the run of a query for a folder of markers, and ends the run before.
   *
   * @param letters writes the bad rows of a source; null for the partitions of an operator
   */
  public synchronized QueryRun run(
      UUID id,
      Path checkpoint,
      String folder,
      Supplier<Configuration> conf,
      QueryRun.Publisher letters) {
    Path markers = new Path(checkpoint, folder);
    QueryRun run = runs.get(markers);
    if (run == null || !run.id.equals(id)) {
      if (run != null) {
        run.end();
      }
      run = new QueryRun(id, checkpoint, markers, conf.get(), letters, events, writers);
      runs.put(markers, run);
    }
    return run;
  }

  /** Called on a query's thread when a batch is in the commit log. */
  public void committed(Path checkpoint, long batch) {
    List<QueryRun> found;
    synchronized (this) {
      found = runs.values().stream().filter(run -> run.checkpoint().equals(checkpoint)).toList();
    }
    found.forEach(run -> run.committed(batch));
  }

  /** Guards an operator in a batch, and ends guards of earlier batches. */
  public synchronized SparkSide guard(GuardKey key, QueryRun run, Supplier<?> batch) {
    if (!listens) {
      // A queue of its own: no other listener can delay it.
      spark.listenerBus().addToQueue(new Events(), "holdfast");
      listens = true;
    }
    if (!guards.containsKey(key)) {
      guards.values().removeIf(old -> old.run == run || !runs.containsValue(old.run));
      guardedStages.values().removeIf(old -> !guards.containsValue(old));
      Guarded fresh = new Guarded(run, new SparkSide(key, spark));
      fresh.tell(Map.of("Begin", batch.get()));
      guards.put(key, fresh);
    }
    return guards.get(key).side;
  }

  /** Called before the sink of a batch commits. Returns when the permission is durable. */
  public void seal(GuardKey key) {
    Guarded guard = guards.get(key);
    if (guard == null) {
      throw new HoldfastException("The query has gone on without " + key);
    }
    CompletableFuture<DriverReply> sealed = guard.run.call(QueryRun.OF_SINK);
    guard.tell("Seal");
    if (sealed.join() instanceof DriverReply.Refused refused) {
      throw new HoldfastException(refused.why());
    }
  }

  /** Answers a task that asks about a partition, or that is through with it. */
  public CompletableFuture<DriverReply> answer(DriverRequest request) {
    if (request instanceof DriverRequest.Decide asked) {
      return answer(asked.guard(), asked.part(), guard -> ask(guard, asked.part(), asked.id()));
    }
    DriverRequest.Settle settled = (DriverRequest.Settle) request;
    Part part = settled.part();
    return answer(
        settled.guard(),
        part,
        guard -> {
          Object with =
              settled.found() == null
                  ? System.currentTimeMillis()
                  : List.of(new RawValue(settled.found()), guard.side.input(settled.read()));
          guard.tell(Map.of("Settles", List.of(part, with)));
        });
  }

  private CompletableFuture<DriverReply> answer(
      GuardKey key, Part part, Consumer<Guarded> tell) {
    Guarded guard = guards.get(key);
    if (guard == null) {
      return CompletableFuture.completedFuture(
          new DriverReply.Refused("The query has gone on without task " + part.attempt()));
    }
    CompletableFuture<DriverReply> reply = guard.run.call(part);
    tell.accept(guard);
    return reply;
  }

  /** The machine receives the question after all events that Spark has posted before. */
  private void ask(Guarded guard, Part part, long task) {
    // If Spark submits the stage again from now on, this partition is one of those that ask.
    guard.side.suspects().add(part.partition());
    AtomicBoolean heard = new AtomicBoolean();
    events.post(
        () -> {
          heard.set(true);
          guard.tell(Map.of("Asks", List.of(part, task)));
        });
    String late =
        String.format(
            "Spark's listeners are more than %d s behind, so it is unknown which attempts run"
                + " beside %s",
            EVENTS_S, part.attempt());
    SparkEvents.after(
        EVENTS_S,
        () -> {
          if (!heard.get()) {
            guard.run.reply(part, new DriverReply.Refused(late));
          }
        });
  }

  private final class Events extends SparkListener {
    @Override
    public void onStageSubmitted(SparkListenerStageSubmitted event) {
      int stage = event.stageInfo().stageId();
      List<RDDInfo> rdds = CollectionConverters.asJava(event.stageInfo().rddInfos());
      for (Guarded guard : guards.values()) {
        if (rdds.stream().anyMatch(rdd -> guard.side.isGuardedBy(rdd.id()))) {
          guardedStages.put(stage, guard);
          guard.tell(Map.of("StageBegan", List.of(stage, rdds.get(0).numPartitions())));
        }
      }
    }

    @Override
    public void onStageCompleted(SparkListenerStageCompleted event) {
      tell(event.stageInfo().stageId(), "StageEnded", event.stageInfo().stageId());
    }

    @Override
    public void onTaskStart(SparkListenerTaskStart event) {
      TaskInfo task = event.taskInfo();
      Attempt attempt = attempt(event.stageId(), event.stageAttemptId(), task);
      tell(event.stageId(), "Began", List.of(attempt, task.taskId()));
    }

    @Override
    public void onTaskEnd(SparkListenerTaskEnd event) {
      Attempt attempt = attempt(event.stageId(), event.stageAttemptId(), event.taskInfo());
      boolean success = event.reason() == Success$.MODULE$;
      String failure = Failures.text(event.reason());
      tell(event.stageId(), "Ended", Arrays.asList(attempt, success, failure));
    }

    @Override
    public void onOtherEvent(SparkListenerEvent event) {
      if (event instanceof SparkEvents.Posted posted) {
        posted.task().run();
      }
    }

    private void tell(int stage, String kind, Object fact) {
      Guarded guard = guardedStages.get(stage);
      if (guard != null) {
        guard.tell(Map.of(kind, fact));
      }
    }

    private static Attempt attempt(int stage, int stageAttempt, TaskInfo task) {
      return new Attempt(stage, stageAttempt, task.partitionId(), task.attemptNumber());
    }
  }
}
