package io.holdfast.bench;

import java.util.ArrayList;
import java.util.List;
import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoder;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.streaming.ListState;
import org.apache.spark.sql.streaming.OutputMode;
import org.apache.spark.sql.streaming.StatefulProcessor;
import org.apache.spark.sql.streaming.TTLConfig;
import org.apache.spark.sql.streaming.TimeMode;
import org.apache.spark.sql.streaming.TimerValues;
import scala.Tuple2;
import scala.Tuple3;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** All rows of each key in a list, and their count and sum, as {@code resident/processor.py} has them. */
public final class Histories extends StatefulProcessor<Long, Row, Tuple3<Long, Long, Long>> {
  private static final long serialVersionUID = 1L;
  private static final Encoder<Tuple2<Long, String>> ROW =
      Encoders.tuple(Encoders.LONG(), Encoders.STRING());

  private final int noteBytes;
  private transient ListState<Tuple2<Long, String>> history;

  private Histories(int noteBytes) {
    this.noteBytes = noteBytes;
  }

  /** Transforms rows of {@code number} and {@code amount}. */
  public static Dataset<Row> of(Dataset<Row> rows, int noteBytes) {
    return rows.groupByKey((MapFunction<Row, Long>) row -> row.getAs("number"), Encoders.LONG())
        .transformWithState(
            new Histories(noteBytes),
            TimeMode.None(),
            OutputMode.Update(),
            Encoders.tuple(Encoders.LONG(), Encoders.LONG(), Encoders.LONG()))
        .toDF("number", "rows", "total");
  }

  @Override
  public void init(OutputMode outputMode, TimeMode timeMode) {
    history = getHandle().getListState("history", ROW, TTLConfig.NONE());
  }

  @Override
  public Iterator<Tuple3<Long, Long, Long>> handleInputRows(
      Long key, Iterator<Row> rows, TimerValues timers) {
    String note = String.format("%0" + noteBytes + "d", key);
    List<Tuple2<Long, String>> added = new ArrayList<>();
    rows.foreach(row -> added.add(new Tuple2<>(row.getAs("amount"), note)));
    history.appendList(added.toArray(Histories::newRows));
    long count = 0;
    long total = 0;
    Iterator<Tuple2<Long, String>> all = history.get();
    while (all.hasNext()) {
      count++;
      total += all.next()._1();
    }
    return CollectionConverters.asScala(List.of(new Tuple3<>(key, count, total)).iterator());
  }

  @SuppressWarnings("unchecked")
  private static Tuple2<Long, String>[] newRows(int size) {
    return (Tuple2<Long, String>[]) new Tuple2<?, ?>[size];
  }
}
