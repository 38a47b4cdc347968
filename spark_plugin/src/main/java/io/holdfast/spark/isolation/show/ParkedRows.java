package io.holdfast.spark.isolation.show;

import io.holdfast.spark.Native;
import io.holdfast.spark.PipelineFiles;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.isolation.task.InputForm;
import io.holdfast.spark.isolation.task.PendingRows;
import io.holdfast.spark.isolation.task.RowsRDD;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.SequenceInputStream;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Enumeration;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.SerializableConfiguration;
import scala.jdk.javaapi.CollectionConverters;

/** The pending rows of a checkpoint, as data frames of a local session, for the command line. */
public final class ParkedRows {
  private static final int REFERENCE_BYTES = 44;
  private static final List<String> SIDES = List.of("left", "right");

  /**
   * The pending rows of a partition from a batch.
   *
   * @param pieces references of its segments
   * @param skipped see {@link PendingRows}
   */
  private record Input(
      String operator, int partition, String store, long batch, byte[] pieces, long[] skipped)
      implements Serializable {
    String region() {
      return Integer.toString(partition);
    }
  }

  private final SparkSession session;
  private final String folder;
  private final SerializableConfiguration conf;
  private final List<Input> inputs = new ArrayList<>();
  private InputForm form;

  /** The folder has the segments. */
  public ParkedRows(SparkSession session, String folder) {
    this.session = session;
    this.folder = folder;
    conf = new SerializableConfiguration(session.sessionState().newHadoopConf());
  }

  /**
   * Adds the pending rows of a partition from a batch.
   *
   * @param skipped the bounds of ranges of rows to leave out, with commas
   */
  public void add(
      String operator, int partition, String store, long batch, byte[] pieces, String skipped)
      throws IOException {
    long[] ranges =
        Arrays.stream(skipped.split(","))
            .filter(number -> !number.isEmpty())
            .mapToLong(Long::parseLong)
            .toArray();
    Input input = new Input(operator, partition, store, batch, pieces, ranges);
    try (DataInputStream in = new DataInputStream(open(segments(folder, conf), input))) {
      form = InputForm.read(in);
    }
    if (!form.text().startsWith(InputForm.SPARK + ";")) {
      throw new UnsupportedStateException(
          String.format(
              "The rows that are parked in batch %d were written by %s, and this is %s. Use the"
                  + " PySpark of the query.",
              batch, form.text().split(";")[0], InputForm.SPARK));
    }
    inputs.add(input);
  }

  /** A data frame for each input of the operator: one, or both sides of a join. */
  public List<Dataset<Row>> frames() {
    return IntStream.range(0, form.schemas().size())
        .mapToObj(
            exchange -> session.internalCreateDataFrame(rows(exchange), schema(exchange), false))
        .toList();
  }

  private RowsRDD rows(int exchange) {
    String from = folder;
    SerializableConfiguration hadoop = conf;
    List<Input> all = List.copyOf(inputs);
    String side = side(exchange);
    return new RowsRDD(
        session.sparkContext(),
        all.size(),
        (number, task) -> read(segments(from, hadoop), all.get(number), exchange, side, task));
  }

  private static long segments(String folder, SerializableConfiguration conf) {
    return new PipelineFiles(conf.value()).openSegments(folder);
  }

  /** Null for the one input of an operator that is no join. */
  private String side(int exchange) {
    return form.schemas().size() == 1 ? null : SIDES.get(exchange);
  }

  private StructType schema(int exchange) {
    StructType schema =
        new StructType()
            .add("_batch", DataTypes.LongType, false)
            .add("_partition", DataTypes.IntegerType, false)
            .add("_row", DataTypes.LongType, false);
    if (side(exchange) != null) {
      schema = schema.add("_side", DataTypes.StringType, false);
    }
    Set<String> names = new HashSet<>(List.of(schema.fieldNames()));
    for (StructField field : form.schema(exchange).fields()) {
      String name = field.name();
      for (int n = 2; !names.add(name.toLowerCase(Locale.ROOT)); n++) {
        name = field.name() + "_" + n;
      }
      schema = schema.add(name, field.dataType(), field.nullable());
    }
    return schema;
  }

  /** One piece is in memory at a time. */
  private static InputStream open(long segments, Input input) {
    Iterator<InputStream> pieces =
        IntStream.range(0, input.pieces.length / REFERENCE_BYTES)
            .map(piece -> piece * REFERENCE_BYTES)
            .mapToObj(at -> Arrays.copyOfRange(input.pieces, at, at + REFERENCE_BYTES))
            .map(
                piece ->
                    Native.readSegment(
                        segments, piece, "", input.operator, input.region(), input.store))
            .<InputStream>map(ByteArrayInputStream::new)
            .iterator();
    Enumeration<InputStream> all =
        CollectionConverters.asJavaEnumeration(CollectionConverters.asScala(pieces));
    return new SequenceInputStream(all) {
      @Override
      public void close() {
        // The superclass's method reads the remaining pieces.
        Native.closeStored(segments);
      }
    };
  }

  private static scala.collection.Iterator<InternalRow> read(
      long segments, Input input, int exchange, String side, TaskContext task) {
    PendingRows rows = new PendingRows(open(segments, input), exchange, input.skipped, task);
    return rows.map(
        row -> {
          List<Object> place = new ArrayList<>(List.of(input.batch, input.partition, rows.number()));
          if (side != null) {
            place.add(UTF8String.fromString(side));
          }
          return new JoinedRow(new GenericInternalRow(place.toArray()), row);
        });
  }
}
