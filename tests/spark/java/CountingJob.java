import java.util.ArrayList;
import java.util.List;
import java.util.function.UnaryOperator;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.ListState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import org.apache.spark.sql.streaming.ValueState;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** {@code transformWithState} of the JVM: counts the rows of every key and lists their values. */
public final class CountingJob implements UnaryOperator<Dataset<Row>> {
  @Override
  public Dataset<Row> apply(Dataset<Row> events) {
    return events
        .groupByKey((MapFunction<Row, String>) row -> row.getAs("key"), Encoders.STRING())
        .transformWithState(
            new Counting(),
            TimeMode.None(),
            OutputMode.Update(),
            Encoders.tuple(Encoders.STRING(), Encoders.LONG(), Encoders.STRING()))
        .toDF("key", "n", "values");
  }

  /** One value and one list for each key. */
  public static final class Counting
      extends StatefulProcessor<String, Row, Tuple3<String, Long, String>> {
    private static final long serialVersionUID = 1L;

    private transient ValueState<Long> count;
    private transient ListState<Long> values;

    @Override
    public void init(OutputMode outputMode, TimeMode timeMode) {
      count = getHandle().getValueState("count", Encoders.LONG(), TTLConfig.NONE());
      values = getHandle().getListState("values", Encoders.LONG(), TTLConfig.NONE());
    }

    @Override
    public Iterator<Tuple3<String, Long, String>> handleInputRows(
        String key, Iterator<Row> rows, TimerValues timers) {
      long n = count.exists() ? count.get() : 0;
      while (rows.hasNext()) {
        values.appendValue(rows.next().<Long>getAs("value"));
        n++;
      }
      count.update(n);
      List<Long> all = new ArrayList<>();
      CollectionConverters.asJava(values.get()).forEachRemaining(all::add);
      return CollectionConverters.asScala(
          List.of(new Tuple3<>(key, n, all.toString())).iterator());
    }
  }
}
