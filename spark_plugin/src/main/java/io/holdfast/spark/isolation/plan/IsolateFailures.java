package io.holdfast.spark.isolation.plan;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.Native;
import io.holdfast.spark.isolation.driver.DecisionService;
import io.holdfast.spark.isolation.driver.EndOfInput;
import io.holdfast.spark.isolation.driver.QueryRun;
import io.holdfast.spark.isolation.task.InputForm;
import io.holdfast.spark.isolation.task.KeyGroups;
import io.holdfast.spark.isolation.task.ParkTask;
import io.holdfast.spark.isolation.task.PendingBatch;
import io.holdfast.spark.isolation.task.RowsRDD;
import io.holdfast.spark.isolation.task.StoreAccess;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import io.holdfast.spark.sparklog.CommitLog;
import java.lang.reflect.InvocationHandler;
import java.lang.reflect.InvocationTargetException;
import java.lang.reflect.Proxy;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import java.util.concurrent.atomic.AtomicInteger;
import java.util.stream.IntStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.SortOrder;
import org.apache.spark.sql.connector.write.BatchWrite;
import org.apache.spark.sql.execution.CoalesceExec;
import org.apache.spark.sql.execution.CollapseCodegenStages;
import org.apache.spark.sql.execution.RDDScanExec;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.datasources.v2.V2TableWriteExec;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Option;
import scala.PartialFunction$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The rule that guards the stage of the last stateful operator of a plan. It runs after the rule
 * that gives operators their state, and before stages become generated code.
 */
public record IsolateFailures(DecisionService decisions, SparkContext spark, HoldfastConf conf) {
  private static final Logger LOG = LoggerFactory.getLogger(IsolateFailures.class);

  private static final class Unsupported extends Exception {
    private static final long serialVersionUID = 1L;

    Unsupported(String why) {
      super(why, null, false, false);
    }
  }

  /** Spark's stage: nodes from its top to the operator, and the exchanges below the operator. */
  private record Stage(List<SparkPlan> above, List<SparkPlan> exchanges) {
    SparkPlan top() {
      return above.get(0);
    }

    SparkPlan operator() {
      return above.get(above.size() - 1);
    }

    /** The number of an exchange; -1 for any other node. */
    int exchange(SparkPlan node) {
      return IntStream.range(0, exchanges.size())
          .filter(i -> exchanges.get(i) == node)
          .findFirst()
          .orElse(-1);
    }
  }

  /** The rows of the batch itself, without rows of keys that wait. */
  private record OtherKeys(KeyGroups keys) implements GuardExec.Execution {
    @Override
    public RDD<InternalRow> execute(SparkPlan exchange) {
      KeyGroups groups = keys;
      return exchange
          .execute()
          .toJavaRDD()
          .mapPartitionsWithIndex(
              (partition, rows) ->
                  CollectionConverters.asJava(
                      groups.delivered(CollectionConverters.asScala(rows), partition)),
              true)
          .rdd();
    }

    /** For {@code explain}. */
    @Override
    public String toString() {
      return "keys that do not wait";
    }
  }

  /** Returns the plan with a guard, or the same plan if no operator can be guarded. */
  public SparkPlan apply(SparkPlan plan) {
    List<SparkPlan> path = Stages.pathToOperator(plan);
    if (path == null) {
      return plan;
    }
    StateStoreWriter operator = (StateStoreWriter) path.get(path.size() - 1);
    StatefulOperatorStateInfo state = operator.stateInfo().get();
    QueryRun run =
        decisions.run(
            state.queryRunId(),
            new Path(state.checkpointLocation()).getParent(),
            "isolation",
            () -> plan.session().sessionState().newHadoopConf(),
            null);
    try {
      MicroBatchExecution query = EndOfInput.queryOfThread(spark);
      boolean realTime = query != null && query.lastExecution().isRealTimeMode(); // from-4.3
      // until-4.2: boolean realTime = false;
      require(!realTime, "it runs in Real-Time Mode");
      Stage stage = stage(path);
      decisions.offerMetrics(run);
      boolean seals = Fields.get(plan, "batchWrite") != null;
      Guard guard = guard(stage, state, run, seals);
      SparkPlan top = stage.top();
      SparkPlan exchange = stage.exchanges().get(0);
      SparkPlan divided =
          guard.passes().isEmpty() || guard.keys() == null
              ? top
              : GuardExec.replaced(
                  top, exchange, new GuardExec(exchange, new OtherKeys(guard.keys())));
      SparkPlan guarded = GuardExec.replaced(plan, top, new GuardExec(divided, guard));
      int operators = Stages.operators(plan, true);
      if (operators > 1 && run.mayWarn()) {
        LOG.warn(
            "Failures are isolated in the last of {} stateful operators, {} (operator {}, run {})."
                + " A task of an earlier stage that keeps failing fails the batch.",
            operators,
            operator.shortName(),
            state.operatorId(),
            state.queryRunId());
      }
      return seals ? sealed(guarded, guard.key()) : guarded;
    } catch (Unsupported e) {
      if (run.mayWarn()) {
        LOG.warn(
            "Failures of partitions are not isolated in this query (run {}): {}. A task that keeps"
                + " failing fails the batch.",
            state.queryRunId(),
            e.getMessage());
      }
      return plan;
    }
  }

  /** The write with a sink that commits only when the permission is durable. */
  private SparkPlan sealed(SparkPlan write, GuardKey key) {
    Object sink = Fields.get(write, "batchWrite");
    InvocationHandler sealing =
        (proxy, method, arguments) -> {
          if (method.getName().equals("commit")) {
            decisions.seal(key);
          }
          try {
            return method.invoke(sink, arguments);
          } catch (InvocationTargetException e) {
            throw e.getCause();
          }
        };
    ClassLoader loader = IsolateFailures.class.getClassLoader();
    Class<?>[] interfaces = {BatchWrite.class};
    return Fields.with(write, "batchWrite", Proxy.newProxyInstance(loader, interfaces, sealing));
  }

  private static Stage stage(List<SparkPlan> path) throws Unsupported {
    int begin = 0;
    for (int i = 0; i < path.size(); i++) {
      if (path.get(i) instanceof Exchange || path.get(i) instanceof V2TableWriteExec) {
        begin = i + 1;
      }
    }
    List<SparkPlan> above = path.subList(begin, path.size());
    SparkPlan operator = path.get(path.size() - 1);
    for (SparkPlan node : above.subList(0, above.size() - 1)) {
      require(node.children().size() == 1, node.nodeName() + " has several inputs");
      require(!(node instanceof CoalesceExec), "coalesce() joins partitions of the operator");
    }
    List<SparkPlan> exchanges = Stages.inputs(operator);
    int partitions = ((StateStoreWriter) operator).stateInfo().get().numPartitions();
    for (SparkPlan input : exchanges) {
      require(
          input instanceof ShuffleExchangeExec,
          "there is no shuffle between " + input.nodeName() + " and " + operator.nodeName());
      require(
          partitions > 1 && input.outputPartitioning().numPartitions() == partitions,
          "its state has one partition");
    }
    require(Stages.operators(operator, false) == 1, "two stateful operators are in one stage");
    String mode = String.valueOf(Fields.get(operator, "outputMode"));
    require(!mode.equals("Complete"), "its output mode is complete");
    require(
        !Boolean.TRUE.equals(Fields.get(operator, "hasInitialState")),
        "it reads its initial state, in the first batch");
    List<String> missing = Fields.missing(operator, ((StateStoreWriter) operator).shortName());
    require(missing.isEmpty(), operator.nodeName() + " has no " + String.join(", ", missing));
    return new Stage(above, exchanges);
  }

  private static void require(boolean holds, String otherwise) throws Unsupported {
    if (!holds) {
      throw new Unsupported(otherwise);
    }
  }

  private Guard guard(Stage stage, StatefulOperatorStateInfo state, QueryRun run, boolean seals)
      throws Unsupported {
    int failuresMax = decisions.failuresMax();
    require(failuresMax > 1, DecisionService.ONE_ATTEMPT);
    InputForm input = InputForm.of(stage.exchanges());
    int attempts = Math.min(conf.isolationAttempts, failuresMax - 1);
    String name = ((StateStoreWriter) stage.operator()).shortName();
    KeyGroups keys = Stages.keys(stage.operator(), name, stage.exchanges());
    return new Guard(
        decisions,
        run,
        state,
        Fields.times(stage.operator()),
        input,
        passes(stage, state, input, keys, run),
        conf,
        attempts,
        seals,
        keys,
        stage.operator().conf().minBatchesToRetain());
  }

  /** A copy of the stage for each batch with pending rows in a partition. */
  private List<Guard.Pass> passes(
      Stage stage, StatefulOperatorStateInfo state, InputForm input, KeyGroups keys, QueryRun run) {
    TreeMap<Long, Map<Integer, String>> idsByBatch = new TreeMap<>();
    for (int partition = 0; partition < state.numPartitions(); partition++) {
      String[] ids = ParkTask.idsOf(state, partition);
      if (ids != null && CommitLog.isHoldfasts(ids[0])) {
        for (long version : Native.pendingVersions(ids[0])) {
          idsByBatch.computeIfAbsent(version - 1, key -> new TreeMap<>()).put(partition, ids[0]);
        }
      }
    }
    if (idsByBatch.isEmpty()) {
      return List.of();
    }
    Skips skips = Skips.read(run.checkpoint(), run.conf());
    StoreAccess stores = StoreAccess.of((StateStoreWriter) stage.operator());
    List<Guard.Pass> passes = new ArrayList<>();
    idsByBatch.forEach(
        (batch, ids) -> {
          Map<Integer, long[]> skipped = skips.of(state.operatorId(), batch, ids);
          PendingBatch pending = new PendingBatch(stores, batch, input, keys, ids, skipped);
          SparkPlan pass = copy(stage, pending, state.numPartitions(), run.timesOf(batch));
          passes.add(new Guard.Pass(pending, pass));
        });
    return passes;
  }

  /** The stage with pending rows in the place of the exchanges, and the times of their batch. */
  private SparkPlan copy(
      Stage stage, PendingBatch pending, int partitions, Map<String, Long> times) {
    SparkPlan copy =
        stage
            .top()
            .transformDown(
                PartialFunction$.MODULE$.fromFunction(
                    node -> {
                      int exchange = stage.exchange(node);
                      return exchange < 0
                          ? Fields.withTimes(node, times)
                          : parkedRows(
                              node,
                              new RowsRDD(
                                  spark,
                                  partitions,
                                  (partition, task) ->
                                      pending.delivered(exchange, partition, task)));
                    }));
    // The copy is no part of the plan, so Spark's own rules do not see it.
    return new CollapseCodegenStages(new AtomicInteger()).apply(copy);
  }

  private static SparkPlan parkedRows(SparkPlan exchange, RowsRDD rows) {
    return new RDDScanExec(
        exchange.output(),
        rows,
        "ParkedRows",
        exchange.outputPartitioning(),
        CollectionConverters.asScala(List.<SortOrder>of()).toSeq(),
        Option.empty());
  }
}
