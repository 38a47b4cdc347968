package io.holdfast.spark.isolation.show;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import io.holdfast.spark.isolation.driver.DecisionService;
import io.holdfast.spark.store.StoreMetrics;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.function.ToLongFunction;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.streaming.StateOperatorProgress;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.apache.spark.sql.streaming.StreamingQueryProgress;

/** Pending rows of all queries, as of the last batch of each, for Spark's metrics system. */
public final class ParkedFigures extends SparkListener {
  /** The pending rows of a query, and when the oldest of them became pending. */
  private record Parked(long partitions, long rows, long bytes, long sinceMs) {
    long ageMs() {
      return System.currentTimeMillis() - sinceMs;
    }
  }

  private final DecisionService decisions;
  private final Map<String, Parked> ofQueries = new ConcurrentHashMap<>();

  public ParkedFigures(DecisionService decisions) {
    this.decisions = decisions;
  }

  /** Sums over queries, and the age of the oldest rows. */
  public void register(MetricRegistry registry) {
    registry.register("parkedPartitions", sum(Parked::partitions));
    registry.register("parkedRows", sum(Parked::rows));
    registry.register("parkedBytes", sum(Parked::bytes));
    Gauge<Long> oldest =
        () -> ofQueries.values().stream().mapToLong(Parked::ageMs).max().orElse(0);
    registry.register("parkedMs", oldest);
  }

  private Gauge<Long> sum(ToLongFunction<Parked> figure) {
    return () -> ofQueries.values().stream().mapToLong(figure).sum();
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    if (!(event instanceof StreamingQueryListener.QueryProgressEvent progressed)) {
      return;
    }
    StreamingQueryProgress progress = progressed.progress();
    String query = progress.id().toString();
    ofQueries.remove(query);
    for (StateOperatorProgress operator : progress.stateOperators()) {
      Map<String, Long> metrics = operator.customMetrics();
      if (metrics.getOrDefault(StoreMetrics.PARKED_PARTITIONS, 0L) > 0) {
        Parked parked =
            new Parked(
                metrics.get(StoreMetrics.PARKED_PARTITIONS),
                metrics.get(StoreMetrics.PARKED_ROWS),
                metrics.get(StoreMetrics.PARKED_BYTES),
                decisions.parkedAtMs(query, metrics.get(StoreMetrics.PARKED_SINCE)));
        ofQueries.put(query, parked);
      }
    }
  }
}
