package io.holdfast.spark.isolation;

import io.holdfast.spark.PipelineFiles;
import io.holdfast.spark.StoredSegments;
import io.holdfast.spark.UnsupportedStateException;
import java.io.ByteArrayInputStream;
import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Iterator;
import java.util.List;
import java.util.Locale;
import java.util.Set;
import java.util.stream.IntStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.Dependency;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.Row;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.JoinedRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.Dataset;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructField;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.apache.spark.util.SerializableConfiguration;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/** The rows that wait in a checkpoint, as data frames of a local session, for the command line. */
public final class ParkedRows {
  private static final int REFERENCE_BYTES = 44;
  private static final List<String> SIDES = List.of("left", "right");

  /**
   * The rows of a partition that were parked in a batch.
   *
   * @param pieces references of its segments
   * @param skipped see {@link PendingRows}
   */
  private record Input(
      String operator, int partition, String store, long batch, byte[] pieces, long[] skipped)
      implements Serializable {}

  private final SparkSession session;
  private final String folder;
  private final SerializableConfiguration conf;
  private final List<Input> inputs = new ArrayList<>();
  private InputForm form;

  /**
   * @param folder of the segments
   */
  public ParkedRows(SparkSession session, String folder) {
    this.session = session;
    this.folder = folder;
    conf = new SerializableConfiguration(session.sessionState().newHadoopConf());
  }

  /**
   * Adds the rows of a partition that were parked in a batch.
   *
   * @param skipped where ranges of rows begin and end that are left out, with commas
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
    try (DataInputStream in = new DataInputStream(open(folder, input, conf.value()))) {
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

  /** The rows, a data frame for each input of the operator: one, or both sides of a join. */
  public List<Dataset<Row>> frames() {
    return IntStream.range(0, form.schemas().size())
        .mapToObj(
            exchange ->
                session.internalCreateDataFrame(
                    new Rows(session, folder, conf, inputs, exchange, side(exchange)),
                    schema(exchange),
                    false))
        .toList();
  }

  /** The side of a join; null for the one input of another operator. */
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

  private static InputStream open(String folder, Input input, Configuration conf) {
    StoredSegments segments = new PipelineFiles(conf).openSegments(folder);
    Iterator<InputStream> pieces =
        IntStream.range(0, input.pieces.length / REFERENCE_BYTES)
            .map(piece -> piece * REFERENCE_BYTES)
            .mapToObj(
                begin -> {
                  byte[] piece =
                      Arrays.copyOfRange(input.pieces, begin, begin + REFERENCE_BYTES);
                  String partition = Integer.toString(input.partition);
                  byte[] rows = segments.read(piece, "", input.operator, partition, input.store);
                  return (InputStream) new ByteArrayInputStream(rows);
                })
            .iterator();
    return new InputStream() {
      // One piece is in memory at a time.
      private InputStream piece = InputStream.nullInputStream();

      @Override
      public int read() throws IOException {
        byte[] one = new byte[1];
        return read(one, 0, 1) < 0 ? -1 : one[0] & 0xff;
      }

      @Override
      public int read(byte[] target, int offset, int length) throws IOException {
        int count = piece.read(target, offset, length);
        while (count < 0 && pieces.hasNext()) {
          piece = pieces.next();
          count = piece.read(target, offset, length);
        }
        return count;
      }

      @Override
      public void close() {
        segments.close();
      }
    };
  }

  /** A partition for each input. */
  private static final class Rows extends RDD<InternalRow> {
    private static final long serialVersionUID = 1L;

    private final String folder;
    private final SerializableConfiguration conf;
    private final List<Input> inputs;
    private final int exchange;
    private final String side;

    Rows(
        SparkSession session,
        String folder,
        SerializableConfiguration conf,
        List<Input> inputs,
        int exchange,
        String side) {
      super(
          session.sparkContext(),
          CollectionConverters.asScala(List.<Dependency<?>>of()).toSeq(),
          ClassTag$.MODULE$.apply(InternalRow.class));
      this.folder = folder;
      this.conf = conf;
      this.inputs = List.copyOf(inputs);
      this.exchange = exchange;
      this.side = side;
    }

    private record Numbered(int index) implements OwnPartition {}

    @Override
    public Partition[] getPartitions() {
      return IntStream.range(0, inputs.size()).mapToObj(Numbered::new).toArray(Partition[]::new);
    }

    @Override
    public scala.collection.Iterator<InternalRow> compute(Partition split, TaskContext task) {
      Input input = inputs.get(split.index());
      InputStream in = open(folder, input, conf.value());
      PendingRows rows = new PendingRows(in, exchange, input.skipped, task);
      return new NextRows(
          () -> {
            UnsafeRow row = rows.next();
            if (row == null) {
              return null;
            }
            Object[] place = {input.batch, input.partition, rows.number()};
            if (side != null) {
              place = Arrays.copyOf(place, 4);
              place[3] = UTF8String.fromString(side);
            }
            return new JoinedRow(new GenericInternalRow(place), row);
          });
    }
  }
}
