import java.util.Iterator;
import java.util.List;
import org.apache.spark.api.java.function.FlatMapGroupsWithStateFunction;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.api.java.function.MapGroupsWithStateFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.KeyValueGroupedDataset;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.GroupState;
import org.apache.spark.sql.streaming.GroupStateTimeout;
import org.apache.spark.sql.streaming.OutputMode;
import scala.Tuple2;
import scala.Tuple3;

/**
 * {@code flatMapGroupsWithState} and {@code mapGroupsWithState}: adds up values by key, and says
 * when a key timed out.
 */
public final class GroupStateJob {
  private static final Encoder<Tuple2<Long, Long>> STATE =
      Encoders.tuple(Encoders.LONG(), Encoders.LONG());
  private static final Encoder<Tuple3<String, Long, String>> OUTPUT =
      Encoders.tuple(Encoders.STRING(), Encoders.LONG(), Encoders.STRING());

  /**
   * @param mode {@code append} or {@code update}
   * @param timeout name of a {@code GroupStateTimeout}
   */
  public Dataset<Row> flatMap(Dataset<Row> events, String mode, String timeout) {
    FlatMapGroupsWithStateFunction<String, Row, Tuple2<Long, Long>, Tuple3<String, Long, String>>
        add = (key, rows, state) -> List.of(add(key, rows, state, timeout)).iterator();
    return byKey(events)
        .flatMapGroupsWithState(
            add,
            mode.equals("append") ? OutputMode.Append() : OutputMode.Update(),
            STATE,
            OUTPUT,
            named(timeout))
        .toDF("key", "total", "what");
  }

  public Dataset<Row> map(Dataset<Row> events, String timeout) {
    MapGroupsWithStateFunction<String, Row, Tuple2<Long, Long>, Tuple3<String, Long, String>> add =
        (key, rows, state) -> add(key, rows, state, timeout);
    return byKey(events)
        .mapGroupsWithState(add, STATE, OUTPUT, named(timeout))
        .toDF("key", "total", "what");
  }

  private static KeyValueGroupedDataset<String, Row> byKey(Dataset<Row> events) {
    return events.groupByKey(
        (MapFunction<Row, String>) row -> row.getAs("key"), Encoders.STRING());
  }

  private static GroupStateTimeout named(String timeout) {
    switch (timeout) {
      case "EventTimeTimeout":
        return GroupStateTimeout.EventTimeTimeout();
      case "ProcessingTimeTimeout":
        return GroupStateTimeout.ProcessingTimeTimeout();
      default:
        return GroupStateTimeout.NoTimeout();
    }
  }

  private static Tuple3<String, Long, String> add(
      String key, Iterator<Row> rows, GroupState<Tuple2<Long, Long>> state, String timeout) {
    if (state.hasTimedOut()) {
      Tuple2<Long, Long> last = state.get();
      state.remove();
      return new Tuple3<>(key, last._1(), "timeout after " + last._2());
    }
    long total = state.exists() ? state.get()._1() : 0;
    long count = state.exists() ? state.get()._2() : 0;
    while (rows.hasNext()) {
      total += rows.next().<Long>getAs("value");
      count++;
    }
    if (timeout.equals("NoTimeout") && total < 0) {
      // Starts again later: exercises removal.
      state.remove();
    } else {
      state.update(new Tuple2<>(total, count));
    }
    if (timeout.equals("EventTimeTimeout")) {
      state.setTimeoutTimestamp(state.getCurrentWatermarkMs() + 240_000);
    } else if (timeout.equals("ProcessingTimeTimeout")) {
      // Batches are further apart than this, so each times out the keys for which it has no row.
      state.setTimeoutDuration(1);
    }
    return new Tuple3<>(key, total, "rows, " + count);
  }
}
