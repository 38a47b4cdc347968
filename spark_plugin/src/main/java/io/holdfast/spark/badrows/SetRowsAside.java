package io.holdfast.spark.badrows;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.isolation.driver.DecisionService;
import io.holdfast.spark.isolation.driver.EndOfInput;
import io.holdfast.spark.isolation.driver.QueryRun;
import io.holdfast.spark.isolation.plan.GuardExec;
import io.holdfast.spark.rpc.DriverRequest.GuardKey;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.catalyst.expressions.aggregate.Partial$;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.adaptive.AdaptiveSparkPlanExec;
import org.apache.spark.sql.execution.adaptive.QueryStageExec;
import org.apache.spark.sql.execution.aggregate.BaseAggregateExec;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.execution.datasources.v2.V2TableWriteExec;
import org.apache.spark.sql.execution.exchange.BroadcastExchangeLike;
import org.apache.spark.sql.execution.exchange.Exchange;
import org.apache.spark.sql.execution.exchange.ShuffleExchangeExec;
import org.apache.spark.sql.execution.python.EvalPythonExec;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.join.StreamingSymmetricHashJoinExec;
import org.apache.spark.sql.execution.streaming.runtime.IncrementalExecution;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.types.StructField;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.PartialFunction$;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The rule that guards stages of a micro-batch from a source to a shuffle or to the sink, if they
 * treat rows independently. It runs before Spark makes generated code of stages.
 */
public record SetRowsAside(DecisionService decisions, SparkContext spark, HoldfastConf conf) {
  private static final Logger LOG = LoggerFactory.getLogger(SetRowsAside.class);

  /** Nodes that treat rows independently, beside partial aggregations. */
  private static final Set<String> BY_ROW =
      Set.of(
          "ProjectExec",
          "FilterExec",
          "GenerateExec",
          "ExpandExec",
          "UnionExec",
          "DeserializeToObjectExec",
          "MapElementsExec",
          "SerializeFromObjectExec",
          "AppendColumnsExec",
          "AppendColumnsWithObjectExec",
          "BatchEvalPythonExec",
          "ArrowEvalPythonExec",
          "BroadcastHashJoinExec",
          "BroadcastNestedLoopJoinExec",
          "EventTimeWatermarkExec",
          "CollectMetricsExec");

  /** Returns the plan with guards, or the same plan if it is no micro-batch of a query. */
  public SparkPlan apply(SparkPlan plan) {
    MicroBatchExecution query = EndOfInput.queryOfThread(spark);
    if (query == null || query.lastExecution() == null) {
      return plan;
    }
    List<SparkPlan> ends = new ArrayList<>();
    if (!(plan instanceof ShuffleExchangeExec)) {
      ends.add(plan instanceof V2TableWriteExec ? plan.children().head() : plan);
    }
    collect(plan, ends);
    SparkPlan guarded = plan;
    Map<SparkPlan, RowGuard> guards = new LinkedHashMap<>();
    int source = 0;
    for (SparkPlan end : ends) {
      SparkPlan top = end instanceof ShuffleExchangeExec ? children(end).get(0) : end;
      List<SparkPlan> nodes = stage(top);
      List<SparkPlan> sources = nodes.stream().filter(SetRowsAside::isSource).toList();
      if (!sources.isEmpty()) {
        RowGuard guard = ofEqual(end, guards);
        guard = guard == null ? guard(plan, nodes, sources, query, source++) : guard;
        if (guard != null) {
          guards.put(end, guard);
          guarded = guarded(guarded, top, guard);
        }
      }
    }
    return guarded;
  }

  /** The guard of an equal stage: Spark runs both once, unless their guards differ. */
  private static RowGuard ofEqual(SparkPlan end, Map<SparkPlan, RowGuard> guards) {
    for (Map.Entry<SparkPlan, RowGuard> other : guards.entrySet()) {
      if (end.conf().exchangeReuseEnabled() && other.getKey().sameResult(end)) {
        return other.getValue();
      }
    }
    return null;
  }

  private static SparkPlan guarded(SparkPlan plan, SparkPlan top, RowGuard guard) {
    SparkPlan open =
        top.transformUp(
            PartialFunction$.MODULE$.fromFunction(
                node -> isSource(node) ? new GuardExec(node, new SourceRDD.Execution()) : node));
    return GuardExec.replaced(plan, top, new ShownRows(guard, new GuardExec(open, guard)));
  }

  public static void register(MetricRegistry registry) {
    Gauge<Long> rows = DeadLetters.WRITTEN::sum;
    registry.register("badRows", rows);
  }

  /** Called on a query's thread when it starts: an earlier run may have left letters unwritten. */
  public static void starting(SparkContext spark, Path checkpoint, Configuration conf) {
    MicroBatchExecution query = EndOfInput.queryOfThread(spark);
    if (query != null && !Program.hasPlanned(query)) {
      DeadLetters.starting(query.id(), checkpoint, conf);
    }
  }

  /** Called on a query's thread before it plans a batch. */
  public static void planning(SparkContext spark, Path checkpoint, Configuration conf) {
    MicroBatchExecution query = EndOfInput.queryOfThread(spark);
    if (query != null) {
      Program.planning(query, checkpoint, conf);
    }
  }

  /** Without the plan for the initial state of an operator. */
  private static List<SparkPlan> children(SparkPlan node) {
    List<SparkPlan> all = CollectionConverters.asJava(node.children());
    boolean both = node instanceof StreamingSymmetricHashJoinExec;
    return node instanceof StateStoreWriter && !both ? all.subList(0, 1) : all;
  }

  /** Adds the shuffles, each the end of a stage. */
  private static void collect(SparkPlan node, List<SparkPlan> ends) {
    if (node instanceof ShuffleExchangeExec) {
      ends.add(node);
    }
    if (!(node instanceof BroadcastExchangeLike)) {
      children(node).forEach(child -> collect(child, ends));
    }
  }

  /** The nodes of a stage, from its top. Those of static sides of joins are none of them. */
  private static List<SparkPlan> stage(SparkPlan top) {
    List<SparkPlan> nodes = new ArrayList<>(List.of(top));
    for (SparkPlan child : top instanceof Exchange ? List.<SparkPlan>of() : children(top)) {
      nodes.addAll(stage(child));
    }
    return nodes;
  }

  /** A leaf with rows of a stream. No function for foreachBatch has one in its own queries. */
  private static boolean isSource(SparkPlan node) {
    return node.children().isEmpty() && node.logicalLink().exists(logical -> logical.isStreaming());
  }

  /** Null, with a warning, if bad rows of the stage cannot be set aside. */
  private RowGuard guard(
      SparkPlan plan,
      List<SparkPlan> nodes,
      List<SparkPlan> sources,
      MicroBatchExecution query,
      int source) {
    IncrementalExecution batch = query.lastExecution();
    Path checkpoint = new Path(batch.checkpointLocation()).getParent();
    DeadLetters letters = new DeadLetters(conf.badRows.deadLetters(), query.id(), source);
    QueryRun run =
        decisions.run(
            batch.runId(),
            checkpoint,
            "bad-rows/" + source,
            () -> plan.session().sessionState().newHadoopConf(),
            letters);
    boolean realTime = batch.isRealTimeMode(); // from-4.3
    // until-4.2: boolean realTime = false;
    String why =
        realTime
            ? "it runs in Real-Time Mode"
            : isAdaptive(plan)
                ? "Spark plans it while it runs; switch"
                    + " spark.sql.adaptive.streaming.stateless.enabled off"
                : whyNot(nodes, sources);
    if (why != null) {
      if (run.mayWarn()) {
        LOG.warn(
            "Bad rows of source {} are not set aside in this query (run {}): {}. A row that throws"
                + " fails the batch.",
            source,
            batch.runId(),
            why);
      }
      return null;
    }
    return new RowGuard(
        decisions,
        run,
        new GuardKey(batch.runId(), batch.currentBatchId(), -1 - source),
        conf.badRows,
        sources,
        nodes.stream().anyMatch(node -> node instanceof EvalPythonExec),
        decisions.isRerun(checkpoint, batch.currentBatchId()),
        query,
        plan.conf().minBatchesToRetain());
  }

  /** Spark plans its stages one by one, and this may be one of them. */
  private static boolean isAdaptive(SparkPlan plan) {
    boolean stateless = plan.conf().adaptiveExecutionEnabledInStatelessStreaming(); // from-4.1
    // until-4.0: boolean stateless = false;
    boolean mayBe = stateless && plan.conf().adaptiveExecutionEnabled();
    return plan.exists(
        node ->
            node instanceof AdaptiveSparkPlanExec
                || node instanceof QueryStageExec
                || mayBe && node instanceof Exchange);
  }

  private String whyNot(List<SparkPlan> nodes, List<SparkPlan> sources) {
    if (decisions.failuresMax() < 2) {
      return DecisionService.ONE_ATTEMPT;
    }
    if (sources.stream().map(SparkPlan::schema).distinct().count() > 1) {
      return "it joins streams with other columns by union";
    }
    ParquetFileFormat letters = new ParquetFileFormat();
    for (StructField column : sources.get(0).schema().fields()) {
      if (!letters.supportDataType(column.dataType())) {
        return "Parquet has no column " + column.name() + " of type " + column.dataType().sql();
      }
    }
    for (SparkPlan node : nodes) {
      String name = node.getClass().getSimpleName();
      boolean byRow =
          isSource(node)
              || node instanceof BroadcastExchangeLike
              || BY_ROW.contains(name)
              || node instanceof BaseAggregateExec aggregate && isPartial(aggregate);
      if (!byRow) {
        return node.nodeName() + " does not treat each row by itself";
      }
    }
    return null;
  }

  private static boolean isPartial(BaseAggregateExec aggregate) {
    return aggregate.aggregateExpressions().nonEmpty()
        && aggregate.aggregateExpressions().forall(one -> one.mode() == Partial$.MODULE$);
  }
}
