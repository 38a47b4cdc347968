package io.holdfast.bench;

import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.HoldfastCheckpointFileManager;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.sparklog.SparkFile;
import io.holdfast.spark.storage.AtomicStream;
import io.holdfast.spark.ui.UiEvents;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Random;
import java.util.UUID;
import java.util.concurrent.ArrayBlockingQueue;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.concurrent.FutureTask;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.util.UninterruptibleThread;

/**
 * One run of a query on the plugin's driver, which is that of this process. The thread of the query
 * makes the calls that Spark makes; the plugin does the rest as in production. Executors are
 * simulated. There are no copies of commits, and no logs of sources.
 */
public final class ScaleBench {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int TASK_THREADS = 2;

  /** Each executor maintains its stores in one of so many batches. */
  private static final int MAINTAINED_EVERY = 10;

  /** One executor in so many dies in a batch. */
  private static final int DIES_ONE_IN = 2_000;

  private static final int LOST_ENTRIES_WITHOUT_LIST = 3; // Spark's
  private static final long CLEAN_UP_MINUTES = 10;

  private final SparkContext spark;
  private final Configuration conf;
  private final Path checkpoint;
  private final int partitionsEach;
  private final String[] ids;
  private final Random random;
  private final UUID query = UUID.randomUUID();
  private final UUID run = UUID.randomUUID();
  private final SegmentFolder folder;
  private final int retained;
  private final long cleanUpEvery;
  private final List<SimulatedExecutor> executors = new ArrayList<>();
  private final BlockingQueue<UiEvents.FilesCounted> cleanUps = new ArrayBlockingQueue<>(1_000);
  private final ExecutorService tasks = Executors.newFixedThreadPool(TASK_THREADS);
  private HoldfastCheckpointFileManager plans;
  private HoldfastCheckpointFileManager commits;
  private int joined; // executors so far
  private long next; // batch
  private long purgedBelow = -1; // -1 before the first time, as in Spark

  /**
   * @param conf of the session; names a checkpoint on any file system
   * @param seed of the executors' deaths
   */
  public ScaleBench(
      SparkContext spark,
      Configuration conf,
      String checkpoint,
      int executors,
      int partitionsEach,
      long seed) {
    this.spark = spark;
    this.conf = conf;
    this.checkpoint = new Path(checkpoint);
    this.partitionsEach = partitionsEach;
    ids = new String[executors * partitionsEach];
    random = new Random(seed);
    retained = conf.getInt(HoldfastConf.RETAINED_KEY, 0);
    double extra = conf.getDouble(HoldfastConf.EXTRA_SPACE_KEY, 0.3);
    cleanUpEvery = Math.round(retained * extra);
    Configuration ofExecutors = new Configuration(conf);
    ofExecutors.setBoolean(CountedStore.OF_EXECUTOR_KEY, true);
    folder = SegmentFolder.of(new Path(checkpoint, "state").toString(), ofExecutors);
    spark.addSparkListener(
        new SparkListener() {
          @Override
          public void onOtherEvent(SparkListenerEvent event) {
            if (event instanceof UiEvents.FilesCounted counted) {
              cleanUps.add(counted);
            }
          }
        });
  }

  /** Starts the query, and returns the figures of the start as JSON. */
  public String start() throws Exception {
    return JSON.writeValueAsString(onQueryThread(() -> measured(this::begin)));
  }

  /** Runs a batch, and returns its figures as JSON. */
  public String batch() throws Exception {
    return JSON.writeValueAsString(onQueryThread(() -> measured(this::batch)));
  }

  /** Ends all executors. */
  public void end() {
    executors.forEach(SimulatedExecutor::end);
    executors.clear();
    tasks.shutdown();
  }

  public static void emptyStore() {
    CountedStore.clear();
  }

  /** Bytes of the heap in use, after garbage was collected. */
  public static long heapBytes() {
    for (int i = 0; i < 3; i++) {
      System.gc();
    }
    Runtime runtime = Runtime.getRuntime();
    return runtime.totalMemory() - runtime.freeMemory();
  }

  private static <T> T onQueryThread(Callable<T> work) throws Exception {
    FutureTask<T> task = new FutureTask<>(work);
    Thread thread = new UninterruptibleThread(task, "stream execution thread");
    thread.start();
    try {
      return task.get();
    } catch (ExecutionException e) {
      throw e.getCause() instanceof Exception cause ? cause : e;
    }
  }

  private interface Measurable {
    void run(Map<String, Object> figures) throws Exception;
  }

  /** Runs a step of the query; returns what grew in it. */
  private Map<String, Object> measured(Measurable step) throws Exception {
    spark.setLocalProperty(HoldfastConf.QUERY_ID_KEY, query.toString());
    Map<String, Object> figures = new LinkedHashMap<>();
    Map<String, Long> before = Meter.ONLY.sums();
    Meter.ONLY.onPath(() -> step.run(figures));
    Meter.ONLY.sums().forEach((name, sum) -> figures.put(name, sum - before.get(name)));
    figures.put("objects", CountedStore.objects());
    return figures;
  }

  // The query

  private void begin(Map<String, Object> figures) throws Exception {
    new HoldfastCheckpointFileManager(checkpoint, conf).createCheckpointDirectory();
    plans = log("offsets");
    commits = log("commits");
    long planned = newest(plans, "offsets");
    if (planned >= 0) {
      read(plans, "offsets", planned);
      read(plans, "offsets", planned - 1);
    }
    long committed = newest(commits, "commits");
    next = committed + 1;
    if (committed >= 0) {
      for (CommitLog.StoreId id :
          CommitLog.holdfastIds(read(commits, "commits", committed))) {
        ids[Integer.parseInt(id.partition().split("/")[1])] = id.id();
      }
    }
  }

  private HoldfastCheckpointFileManager log(String name) {
    Path log = new Path(checkpoint, name);
    HoldfastCheckpointFileManager files = new HoldfastCheckpointFileManager(log, conf);
    if (!files.exists(log)) {
      files.mkdirs(log);
    }
    return files;
  }

  private Path entry(String log, long batch) {
    return new Path(new Path(checkpoint, log), Long.toString(batch));
  }

  private List<Long> listed(HoldfastCheckpointFileManager files, String log) {
    return Arrays.stream(files.list(new Path(checkpoint, log), path -> true))
        .map(FileStatus::getPath)
        .map(path -> SparkFile.of(path).number())
        .filter(number -> number >= 0)
        .toList();
  }

  private long newest(HoldfastCheckpointFileManager files, String log) {
    return listed(files, log).stream().mapToLong(Long::longValue).max().orElse(-1);
  }

  private byte[] read(HoldfastCheckpointFileManager files, String log, long batch)
      throws IOException {
    try (InputStream in = files.open(entry(log, batch))) {
      return in.readAllBytes();
    }
  }

  private void write(HoldfastCheckpointFileManager files, String log, String text)
      throws IOException {
    Path path = entry(log, next);
    if (files.exists(path)) {
      throw new IllegalStateException(path + " is there");
    }
    AtomicStream out = files.createAtomic(path, false);
    out.write(text.getBytes(StandardCharsets.UTF_8));
    out.close();
  }

  private void batch(Map<String, Object> figures) throws Exception {
    Cpu cpu = new Cpu();
    long messages = Meter.ONLY.messageNanos();
    long start = System.nanoTime();
    cpu.resume();
    write(plans, "offsets", plan());
    cpu.pause();
    long asked = Meter.ONLY.answeringNanos();
    join();
    doTasks();
    long published = System.nanoTime();
    cpu.resume();
    Meter.ONLY.awaitExecutors(true);
    write(commits, "commits", commit());
    Meter.ONLY.awaitExecutors(false);
    cpu.pause();
    figures.put("publish_wall_ms", (System.nanoTime() - published) / 1_000_000);
    figures.put("messages_cpu_ns", Meter.ONLY.messageNanos() - messages);
    figures.put("batch", next);
    cleanUp(figures);
    maintain();
    die(figures);
    next++;
    Meter.ONLY.aside(
        () -> {
          cpu.resume();
          purge(next - retained - 1);
          cpu.pause();
        });
    figures.put("query_cpu_ns", cpu.nanos);
    figures.put("answers_cpu_ns", Meter.ONLY.answeringNanos() - asked);
    figures.put("wall_ms", (System.nanoTime() - start) / 1_000_000);
  }

  /** CPU time of the query's thread beside its store. */
  private static final class Cpu {
    long nanos;

    void resume() {
      nanos -= Meter.ONLY.ownNanos();
    }

    void pause() {
      nanos += Meter.ONLY.ownNanos();
    }
  }

  private String plan() {
    return String.format(
        "v1%n{\"batchWatermarkMs\":0,\"batchTimestampMs\":0,\"conf\":{\"%s\":\"%s\","
            + "\"spark.sql.shuffle.partitions\":\"%d\"}}%n%d",
        HoldfastConf.PROVIDER_KEY, HoldfastConf.PROVIDER_CLASS, ids.length, next);
  }

  private String commit() {
    return Arrays.stream(ids)
        .collect(
            Collectors.joining(
                "\"],[\"",
                "v2\n{\"nextBatchWatermarkMs\":0,\"stateUniqueIds\":{\""
                    + SimulatedExecutor.OPERATOR
                    + "\":[[\"",
                "\"]]}}"));
  }

  /** Waits for the clean-up of this batch, if one is due: all runs have the same requests. */
  private void cleanUp(Map<String, Object> figures) throws InterruptedException {
    if (next % cleanUpEvery != cleanUpEvery - 1) {
      return;
    }
    UiEvents.FilesCounted counted = cleanUps.poll(CLEAN_UP_MINUTES, TimeUnit.MINUTES);
    if (counted == null || counted.batch() != next) {
      throw new IllegalStateException("no clean-up after batch " + next + ", but " + counted);
    }
    figures.put("cleaned", counted.files());
    figures.put("clean_up_cpu_ns", Meter.ONLY.takeCleanUpNanos());
  }

  /** Spark's {@code HDFSMetadataLog.purge}, of both logs. It runs beside the next batch. */
  private void purge(long below) {
    if (below <= 0) {
      return;
    }
    purge(plans, "offsets", below);
    purge(commits, "commits", below);
    purgedBelow = below;
  }

  private void purge(HoldfastCheckpointFileManager files, String log, long below) {
    if (below - Math.max(0, purgedBelow) <= LOST_ENTRIES_WITHOUT_LIST) {
      for (long batch = Math.max(0, purgedBelow); batch < below; batch++) {
        files.delete(entry(log, batch));
      }
      return;
    }
    for (long batch : listed(files, log)) {
      if (batch < below) {
        files.delete(entry(log, batch));
      }
    }
  }

  // Executors

  private void join() throws Exception {
    if (executors.isEmpty()) {
      List<Future<SimulatedExecutor>> opened = new ArrayList<>();
      for (int first = 0; first < ids.length; first += partitionsEach) {
        int partition = first;
        String id = "executor-" + joined++;
        opened.add(tasks.submit(() -> executor(id, partition)));
      }
      for (Future<SimulatedExecutor> one : opened) {
        executors.add(one.get());
      }
    }
  }

  private SimulatedExecutor executor(String id, int first) {
    return new SimulatedExecutor(id, spark.conf(), conf, folder, run, first, partitionsEach);
  }

  private interface Work {
    void of(SimulatedExecutor executor);
  }

  private void onAll(List<SimulatedExecutor> some, Work work) throws Exception {
    List<Future<?>> running = new ArrayList<>();
    for (SimulatedExecutor one : some) {
      running.add(tasks.submit(() -> work.of(one)));
    }
    for (Future<?> one : running) {
      one.get();
    }
  }

  private void doTasks() throws Exception {
    onAll(executors, executor -> executor.work(next, ids));
  }

  private void maintain() throws Exception {
    List<SimulatedExecutor> due = new ArrayList<>();
    for (int i = 0; i < executors.size(); i++) {
      if ((i + next) % MAINTAINED_EVERY == 0) {
        due.add(executors.get(i));
      }
    }
    onAll(due, SimulatedExecutor::maintain);
  }

  /** Some executors die between two batches. A new one takes the partitions of each. */
  private void die(Map<String, Object> figures) throws Exception {
    int deaths = 0;
    for (int i = 0; i < executors.size(); i++) {
      if (random.nextInt(DIES_ONE_IN) == 0) {
        SimulatedExecutor dead = executors.get(i);
        dead.end();
        spark
            .listenerBus()
            .post(new SparkListenerExecutorRemoved(System.currentTimeMillis(), dead.id(), "died"));
        spark.listenerBus().waitUntilEmpty();
        executors.set(i, tasks.submit(() -> executor("executor-" + joined++, dead.first())).get());
        deaths++;
      }
    }
    figures.put("deaths", deaths);
  }
}
