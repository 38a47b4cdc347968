package io.holdfast.spark.driver;

import io.holdfast.spark.files.CommitLog;
import io.holdfast.spark.files.Tee;
import io.holdfast.spark.minor.AtomicStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.List;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** An entry of the commit log: published at close, after the state it names is durable. */
public final class CommitLogStream extends AtomicStream {
  private final AtomicStream spark;
  private final ByteArrayOutputStream written;
  private final Path path;
  private final Configuration conf;
  private final Supplier<HoldfastDriver> driver;
  private boolean ended;

  /**
   * @param driver gives the driver side of the plugin, which an entry with ids of Holdfast needs
   */
  public CommitLogStream(
      AtomicStream spark,
      Path path,
      Configuration conf,
      Supplier<HoldfastDriver> driver) {
    this(spark, path, conf, driver, new ByteArrayOutputStream());
  }

  private CommitLogStream(
      AtomicStream spark,
      Path path,
      Configuration conf,
      Supplier<HoldfastDriver> driver,
      ByteArrayOutputStream written) {
    super(new Tee(spark, written));
    this.spark = spark;
    this.written = written;
    this.path = path;
    this.conf = conf;
    this.driver = driver;
  }

  @Override
  public void close() throws IOException {
    if (ended) {
      return;
    }
    ended = true;
    List<CommitLog.StoreId> ids;
    try {
      ids = CommitLog.holdfastIds(written.toByteArray());
      if (!ids.isEmpty()) {
        driver.get().publishing(path, ids, conf);
      }
    } catch (RuntimeException | IOException e) {
      spark.cancel();
      throw e;
    }
    spark.close();
    if (!ids.isEmpty()) {
      driver.get().published(path, conf);
    }
  }

  @Override
  public void cancel() {
    ended = true;
    spark.cancel();
  }
}
