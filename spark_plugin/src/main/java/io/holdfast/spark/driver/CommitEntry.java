package io.holdfast.spark.driver;

import com.fasterxml.jackson.core.JsonProcessingException;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.sparklog.SparkFile;
import io.holdfast.spark.storage.AtomicStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.util.List;
import org.apache.commons.io.output.TeeOutputStream;
import org.apache.hadoop.conf.Configuration;

/** Entries of the commit log: published at close, after the state that they name is durable. */
public final class CommitEntry {
  private CommitEntry() {}

  public static AtomicStream of(AtomicStream spark, SparkFile file, Configuration conf) {
    ByteArrayOutputStream copy = new ByteArrayOutputStream();
    return new AtomicStream(new TeeOutputStream(spark, copy)) {
      @Override
      protected void publish() throws IOException {
        List<CommitLog.StoreId> ids;
        try {
          ids = CommitLog.holdfastIds(copy.toByteArray());
          if (!ids.isEmpty()) {
            HoldfastDriver.running().publishing(file, ids, conf);
            Interruption.throwIfStopped();
          }
        } catch (RuntimeException | IOException e) {
          if (!(e instanceof JsonProcessingException)
              || HoldfastDriver.running().sparkRecords().knows(file.checkpoint(), conf)) {
            spark.cancel();
            Interruption.throwIfBehind(e);
            throw e;
          }
          // A source may have a log of this name that is no commit log.
          ids = List.of();
        }
        spark.close();
        if (!ids.isEmpty()) {
          HoldfastDriver.running().published(file, conf);
        }
        HoldfastDriver.started()
            .ifPresent(driver -> driver.decisions().committed(file.checkpoint(), file.number()));
      }

      @Override
      protected void discard() {
        spark.cancel();
      }
    };
  }
}
