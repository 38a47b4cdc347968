package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.rpc.StoreSize;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.ExecutorAllocationClient;
import org.apache.spark.SparkContext;
import org.apache.spark.SparkEnv;
import org.apache.spark.resource.ResourceProfile;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerExecutorAdded;
import org.apache.spark.scheduler.SparkListenerExecutorRemoved;
import org.apache.spark.sql.execution.streaming.state.StateStoreCoordinatorRef;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Moves state between two batches of a query after executors came or went.
 *
 * <p>Spark runs a task where its state store coordinator has the store, within {@code
 * spark.locality.wait}. So a move is a report to the coordinator that a store is active elsewhere.
 * The next task opens the store there, and the old executor unloads it, as after moves of Spark.
 * Without a move Spark would also wait for executors that are gone.
 */
final class Rebalancer extends SparkListener {
  private static final Logger LOG = LoggerFactory.getLogger(Rebalancer.class);

  private static final long ANSWER_S = 5; // how long a batch waits for an executor's answer

  /** Between two batches. The next batch opens each moved partition, so more would slow it down. */
  private static final int MOVES_MAX = 64;

  /** A local property of the threads of a query: its run. */
  private static final String RUN_KEY = "spark.jobGroup.id";

  private static final String WAIT_KEY = "spark.locality.wait";

  private static final Seq<StateStoreProviderId> NOTHING_TO_CHECK =
      CollectionConverters.asScala(List.<StateStoreProviderId>of()).toSeq();

  private static final class Run {
    final UUID id;

    /** The state is even among these. Nothing is asked until there are other executors. */
    Set<String> even = Set.of();
    final Map<String, List<StoreSize>> open = new HashMap<>(); // by executor, as of its last answer
    List<Balance.Relocation> moves = List.of(); // before the last batch
    final Set<String> unused = new HashSet<>(); // state was to move there, but no task ran

    Run(UUID id) {
      this.id = id;
    }

    void noteUnused(Set<Balance.Part> parts) {
      moves.stream().map(Balance.Relocation::to).forEach(unused::add);
      parts.stream().map(Balance.Part::executor).forEach(unused::remove);
    }
  }

  private final SparkContext spark;
  private final Terms terms;
  private final Map<String, String> hosts = new ConcurrentHashMap<>(); // by executor
  private final Map<String, Run> runs = new ConcurrentHashMap<>(); // by folder

  Rebalancer(SparkContext spark, Terms terms) {
    this.spark = spark;
    this.terms = terms;
  }

  @Override
  public void onExecutorAdded(SparkListenerExecutorAdded added) {
    if (added.executorInfo().resourceProfileId() == ResourceProfile.DEFAULT_RESOURCE_PROFILE_ID()) {
      hosts.put(added.executorId(), added.executorInfo().executorHost());
    }
  }

  @Override
  public void onExecutorRemoved(SparkListenerExecutorRemoved removed) {
    hosts.remove(removed.executorId());
  }

  /** Called on the query's thread. */
  void planning(Path checkpoint, Configuration conf) {
    String run = spark.getLocalProperty(RUN_KEY);
    // A function of the user may have set another group.
    boolean known = run != null && run.matches("[0-9a-f-]{36}");
    if (!known || !HoldfastConf.rebalances(conf) || !executorsComeAndGo()) {
      return;
    }
    String state = new Path(checkpoint, "state").toString();
    try {
      rebalance(UUID.fromString(run), state, SegmentFolder.of(state, conf).name);
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
    } catch (Exception e) {
      // Only the place of state depends on it, and the next batch tries again.
      LOG.warn("State in {} stays on its executors", state, e);
    }
  }

  private boolean executorsComeAndGo() {
    // Without a wait tasks run anywhere, so a place is no use.
    String wait = spark.conf().get(WAIT_KEY, "3s");
    return spark.executorAllocationManager().isDefined()
        && spark.conf().getTimeAsMs(WAIT_KEY + ".process", wait) > 0;
  }

  private void rebalance(UUID id, String state, String dir) throws Exception {
    Run run = runs.compute(dir, (key, old) -> old != null && old.id.equals(id) ? old : new Run(id));
    Map<String, String> hostOf = activeExecutors();
    Set<String> executors = hostOf.keySet();
    if (executors.isEmpty() || executors.equals(run.even)) {
      return;
    }
    LOG.debug("Holdfast asks for the stores of {}: executors are {}", state, executors);
    StateStoreCoordinatorRef coordinator = StateStoreCoordinatorRef.forExecutor(SparkEnv.get());
    Map<Balance.Part, List<StateStoreProviderId>> parts = new HashMap<>();
    run.open.putAll(openStores(dir));
    run.open.forEach(
        (executor, open) -> parts.putAll(partsOf(executor, open, state, id, coordinator)));
    run.noteUnused(parts.keySet());
    Set<String> usable = new HashSet<>(executors);
    usable.removeAll(run.unused);
    run.moves = Balance.moves(parts.keySet(), usable, MOVES_MAX);
    for (Balance.Relocation move : run.moves) {
      Balance.Part part = move.part();
      List<StateStoreProviderId> stores = parts.get(part);
      LOG.info(
          "Holdfast moves partition {} of {} from executor {} to executor {}: {} stores, {} bytes",
          part.partition(),
          state,
          part.executor(),
          move.to(),
          stores.size(),
          part.bytes());
      String host = hostOf.get(move.to());
      stores.forEach(
          store -> coordinator.reportActiveInstance(store, host, move.to(), NOTHING_TO_CHECK));
    }
    // There is no state before the first batch.
    if (run.moves.isEmpty() && !parts.isEmpty()) {
      run.even = executors;
      run.open.keySet().retainAll(executors);
    }
  }

  /** By partition, the stores of an executor that the coordinator has as active there. */
  private static Map<Balance.Part, List<StateStoreProviderId>> partsOf(
      String executor,
      List<StoreSize> open,
      String state,
      UUID run,
      StateStoreCoordinatorRef coordinator) {
    Map<Balance.Part, List<StateStoreProviderId>> parts = new HashMap<>();
    open.stream()
        // Stores of an earlier run, or that moved away, may not be closed yet.
        .filter(store -> coordinator.verifyIfInstanceActive(of(store, state, run), executor))
        .collect(Collectors.groupingBy(StoreSize::partition))
        .forEach(
            (partition, stores) -> {
              long bytes = stores.stream().mapToLong(StoreSize::bytes).sum();
              parts.put(
                  new Balance.Part(partition, executor, bytes),
                  stores.stream().map(store -> of(store, state, run)).toList());
            });
    return parts;
  }

  private static StateStoreProviderId of(StoreSize store, String state, UUID run) {
    return new StateStoreProviderId(
        new StateStoreId(state, store.operator(), store.partition(), store.store()), run);
  }

  /** Executors that are not about to be removed, with their hosts. */
  private Map<String, String> activeExecutors() {
    ExecutorAllocationClient client = (ExecutorAllocationClient) spark.schedulerBackend();
    Map<String, String> active = new HashMap<>(hosts);
    active.keySet().removeIf(executor -> !client.isExecutorActive(executor));
    return active;
  }

  /** By executor, its open stores of a folder, and also stores that have moved away. */
  private Map<String, List<StoreSize>> openStores(String dir) throws Exception {
    Map<String, CompletableFuture<ExecutorReply>> asked = new HashMap<>();
    for (Terms.Writer writer : terms.writers(dir).values()) {
      asked.computeIfAbsent(
          writer.executorId(), any -> writer.link().ask(new ExecutorRequest.ListStores(dir)));
    }
    Map<String, List<StoreSize>> open = new HashMap<>();
    for (Map.Entry<String, CompletableFuture<ExecutorReply>> one : asked.entrySet()) {
      ExecutorReply reply = one.getValue().get(ANSWER_S, TimeUnit.SECONDS);
      if (reply.outcome() == ExecutorReply.Outcome.FAILED) {
        throw new HoldfastException("Executor " + one.getKey() + ": " + reply.error());
      }
      open.put(one.getKey(), reply.stores());
    }
    return open;
  }
}
