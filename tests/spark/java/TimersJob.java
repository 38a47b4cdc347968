import java.time.Duration;
import java.util.List;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.ExpiredTimerInfo;
import org.apache.spark.sql.streaming.MapState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** {@code transformWithState} of the JVM with maps and timers, and with lifetimes by the clock. */
public final class TimersJob {
  /** {@code clock} says that timers follow the clock, and not the watermark. */
  public Dataset<Row> apply(Dataset<Row> events, boolean clock) {
    return events
        .groupByKey((MapFunction<Row, String>) row -> row.getAs("key"), Encoders.STRING())
        .transformWithState(
            new Shelf(clock),
            clock ? TimeMode.ProcessingTime() : TimeMode.EventTime(),
            OutputMode.Update(),
            Encoders.tuple(Encoders.STRING(), Encoders.LONG(), Encoders.STRING()))
        .toDF("key", "total", "what");
  }

  /** Sums by remainder; the key is forgotten when its timer fires. */
  public static final class Shelf
      extends StatefulProcessor<String, Row, Tuple3<String, Long, String>> {
    private static final long serialVersionUID = 1L;

    private final boolean clock;
    private transient MapState<Long, Long> sums;
    private transient ValueState<Boolean> lately;

    Shelf(boolean clock) {
      this.clock = clock;
    }

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      TTLConfig untilNextBatch = new TTLConfig(Duration.ofMillis(1));
      sums = getHandle().getMapState("sums", Encoders.LONG(), Encoders.LONG(), TTLConfig.NONE());
      lately =
          getHandle()
              .getValueState(
                  "lately", Encoders.BOOLEAN(), clock ? untilNextBatch : TTLConfig.NONE());
    }

    @Override
    public Iterator<Tuple3<String, Long, String>> handleInputRows(
        String key, Iterator<Row> rows, TimerValues timers) {
      boolean was = lately.exists();
      lately.update(true);
      while (rows.hasNext()) {
        long value = rows.next().<Long>getAs("value");
        long before = sums.containsKey(value % 3) ? sums.getValue(value % 3) : 0;
        sums.updateValue(value % 3, before + value);
      }
      getHandle()
          .registerTimer(
              clock
                  ? timers.getCurrentProcessingTimeInMs() + 1
                  : timers.getCurrentWatermarkInMs() + 240_000);
      return row(key, was ? "rows, seen lately" : "rows");
    }

    @Override
    public Iterator<Tuple3<String, Long, String>> handleExpiredTimer(
        String key, TimerValues timers, ExpiredTimerInfo timer) {
      Iterator<Tuple3<String, Long, String>> row = row(key, "timer");
      sums.clear();
      return row;
    }

    private Iterator<Tuple3<String, Long, String>> row(String key, String what) {
      long total = 0;
      for (Iterator<Long> values = sums.values(); values.hasNext(); ) {
        total += values.next();
      }
      return CollectionConverters.asScala(List.of(new Tuple3<>(key, total, what)).iterator());
    }
  }
}
