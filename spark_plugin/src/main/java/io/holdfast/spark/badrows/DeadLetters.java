package io.holdfast.spark.badrows;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.isolation.driver.QueryRun;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.storage.Storage;
import io.holdfast.spark.storage.Storages;
import java.io.IOException;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Base64;
import java.util.UUID;
import java.util.concurrent.atomic.LongAdder;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.mapreduce.Job;
import org.apache.hadoop.mapreduce.TaskAttemptID;
import org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl;
import org.apache.spark.sql.catalyst.expressions.GenericInternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.datasources.OutputWriter;
import org.apache.spark.sql.execution.datasources.OutputWriterFactory;
import org.apache.spark.sql.execution.datasources.parquet.ParquetFileFormat;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.unsafe.types.UTF8String;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Writes the bad rows of committed batches, {@code <dead letters>/<query>/<source>/<batch>.parquet}.
 * A file is complete or not there, and writing it again makes the same file.
 */
record DeadLetters(String folder, UUID query, int source)
    implements QueryRun.Publisher {
  private static final Logger LOG = LoggerFactory.getLogger(DeadLetters.class);
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Rows of all queries since the driver began. */
  static final LongAdder WRITTEN = new LongAdder();

  private static final StructType POSITION =
      new StructType()
          .add("topic", DataTypes.StringType)
          .add("partition", DataTypes.IntegerType)
          .add("offset", DataTypes.LongType)
          .add("file", DataTypes.StringType)
          .add("start", DataTypes.LongType)
          .add("row", DataTypes.LongType);

  private Path file(long batch) {
    return new Path(folder, query + "/" + source + "/" + batch + ".parquet");
  }

  /**
   * Writes the letters of committed batches that an earlier run did not write. A run that sets no rows
   * aside must not repeat a batch with bad rows: its sink may have all others.
   */
  static void starting(UUID query, Path checkpoint, Configuration conf) {
    Path root = new Path(checkpoint, "bad-rows");
    boolean setsAside = HoldfastConf.setsRowsAside(conf::get);
    try {
      FileSystem files = root.getFileSystem(conf);
      if (!files.exists(root)) {
        return;
      }
      long committed = CommitLog.newestBatch(new Path(checkpoint, "commits"), conf);
      for (FileStatus one : files.listStatus(root)) {
        if (one.isDirectory() && setsAside) {
          Path markers = one.getPath();
          int source = Integer.parseInt(markers.getName());
          String folder = HoldfastConf.deadLetters(conf::get);
          QueryRun.publish(markers, conf, committed, new DeadLetters(folder, query, source));
        } else if (one.isDirectory() && files.exists(new Path(one.getPath(), "" + (committed + 1)))) {
          throw new HoldfastException(
              String.format(
                  "Batch %s of %s set bad rows aside and has not ended. Its sink may have all other"
                      + " rows, so it has to end with bad_rows=\"dead-letter\": start the query with"
                      + " that once, before you switch it off.",
                  committed + 1, checkpoint));
        }
      }
    } catch (IOException e) {
      throw new HoldfastException("Cannot read the bad rows in " + root, e);
    }
  }

  @Override
  public boolean has(Configuration conf, long batch) {
    try {
      Path file = file(batch);
      return file.getFileSystem(conf).exists(file);
    } catch (IOException e) {
      throw new HoldfastException("Cannot read the dead letters of batch " + batch, e);
    }
  }

  @Override
  public long publish(Configuration conf, long batch, String marker) {
    Path file = file(batch);
    try {
      JsonNode read = JSON.readTree(marker);
      StructType form = (StructType) DataType.fromJson(read.get("form").asText());
      return write(file, conf, batch, form, read.get("rows"));
    } catch (IOException e) {
      throw new HoldfastException(
          "Cannot write the dead letters of batch " + batch + ", " + file + ": " + e.getMessage(),
          e);
    }
  }

  private long write(Path file, Configuration conf, long batch, StructType form, JsonNode rows)
      throws IOException {
    StructType schema =
        new StructType()
            .add("batch", DataTypes.LongType)
            .add("source", DataTypes.IntegerType)
            .add("position", POSITION)
            .add("error_class", DataTypes.StringType)
            .add("error", DataTypes.StringType)
            .add("at", DataTypes.TimestampType);
    // Parquet has no struct without columns, and a query may read none.
    schema = form.isEmpty() ? schema : schema.add("row", form);
    java.nio.file.Path local = Files.createTempDirectory("holdfast-dead-letters");
    java.nio.file.Path made = local.resolve("rows.parquet");
    try {
      Job job = Job.getInstance(conf);
      OutputWriterFactory factory =
          new ParquetFileFormat()
              .prepareWrite(SparkSession.active(), job, scala.collection.immutable.Map$.MODULE$.empty(), schema);
      // Spark's default says in no column that times are in UTC.
      job.getConfiguration().set("spark.sql.parquet.outputTimestampType", "TIMESTAMP_MICROS");
      OutputWriter writer =
          factory.newInstance(
              made.toUri().toString(),
              schema,
              new TaskAttemptContextImpl(job.getConfiguration(), new TaskAttemptID()));
      long count = 0;
      try {
        for (JsonNode bad : rows) {
          for (JsonNode position : bad.get("positions")) {
            writer.write(letter(batch, form, bad.get("letter"), JSON.readTree(position.asText())));
            count++;
          }
        }
      } finally {
        writer.close();
      }
      new Storages(conf).at(file).write(file, Storage.contentOf(made), true);
      WRITTEN.add(count);
      LOG.warn(
          "{} rows of source {} were set aside in batch {}: {}. The first error: {}",
          count,
          source,
          batch,
          file,
          rows.iterator().next().get("letter").get("error").asText());
      return count;
    } finally {
      for (java.io.File left : local.toFile().listFiles()) {
        Files.delete(left.toPath());
      }
      Files.delete(local);
    }
  }

  private GenericInternalRow letter(
      long batch, StructType form, JsonNode letter, JsonNode position) {
    byte[] bytes = Base64.getDecoder().decode(letter.get("row").asText());
    UnsafeRow row = new UnsafeRow(form.length());
    row.pointTo(bytes, bytes.length);
    Object[] place = new Object[POSITION.length()];
    for (int i = 0; i < place.length; i++) {
      JsonNode found = position.get(POSITION.apply(i).name());
      DataType type = POSITION.apply(i).dataType();
      if (found != null) {
        place[i] =
            type.equals(DataTypes.StringType)
                ? UTF8String.fromString(found.asText())
                : type.equals(DataTypes.IntegerType) ? (Object) found.asInt() : found.asLong();
      }
    }
    Object[] values = {
          batch,
          source,
          new GenericInternalRow(place),
          UTF8String.fromString(letter.get("class").asText()),
          UTF8String.fromString(letter.get("error").asText()),
          letter.get("at_ms").asLong() * 1000,
          row
        };
    return new GenericInternalRow(form.isEmpty() ? Arrays.copyOf(values, 6) : values);
  }
}
