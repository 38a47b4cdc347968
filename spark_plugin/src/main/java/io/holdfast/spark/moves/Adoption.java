package io.holdfast.spark.moves;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.sparklog.PlanEntry;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.classic.SparkSession$;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** {@code holdfast adopt} at the start of a query. */
public final class Adoption {
  private static final Logger LOG = LoggerFactory.getLogger(Adoption.class);

  private static final String COMMAND = "adopt";

  private Adoption() {}

  /**
   * Adopts the checkpoint of a query, on the thread of the query, before Spark reads its logs.
   *
   * @param planned the newest planned batch, in which one of Spark's providers has the state, or that
   *     of an adoption that did not end
   * @return false if the thread runs another query, whose code reads this checkpoint
   * @throws UnsupportedStateException if a batch has to end before
   */
  public static boolean atStart(Path checkpoint, long planned, Configuration conf)
      throws IOException {
    SparkSession session = SparkSession$.MODULE$.getActiveSession().get();
    String query = session.sparkContext().getLocalProperty(HoldfastConf.QUERY_ID_KEY);
    if (!isOf(query, checkpoint, conf)) {
      return false;
    }
    long committed = CommitLog.newestBatch(new Path(checkpoint, "commits"), conf);
    Batch newest = committed < 0 ? null : Batch.read(checkpoint, committed, conf);
    if (planned != committed && (newest == null || !isAdoption(checkpoint, planned, newest, conf))) {
      throw new UnsupportedStateException(
          String.format(
              "Checkpoint %1$s cannot be adopted yet: batch %2$d has begun and not ended, and its"
                  + " sink may have some of its rows. Nothing was changed. Run the query once with"
                  + " %3$s=%4$s and trigger(availableNow=True), so that the batch ends. Then start it"
                  + " on Holdfast.",
              checkpoint, planned, HoldfastConf.PROVIDER_KEY, provider(checkpoint, planned, conf)));
    }
    StateCopy copy =
        new StateCopy(
            session,
            checkpoint.toString(),
            newest,
            newest,
            COMMAND,
            HoldfastConf.PROVIDER_CLASS,
            "2");
    LOG.info(
        "Adopting {}: copying the state of batch {}, {} partitions, from {} to Holdfast",
        checkpoint,
        committed,
        copy.partitions(),
        provider(checkpoint, committed, conf));
    copy.run(true);
    LOG.info("Adopting {}: copied {} bytes of rows", checkpoint, copy.doneBytes());
    if (!copy.plan()) {
      refuseUnlessAdopted(checkpoint, conf);
      LOG.info("Adopting {}: another driver has adopted it meanwhile", checkpoint);
      return true;
    }
    LOG.info("Adopting {}: planned batch {}, which has no input", checkpoint, committed + 1);
    copy.commit();
    LOG.info("Adopted {}: committed batch {}. The query goes on", checkpoint, committed + 1);
    return true;
  }

  /** Returns true if a checkpoint is that of a query. */
  static boolean isOf(String query, Path checkpoint, Configuration conf) throws IOException {
    String metadata = Batch.text(new Path(checkpoint, "metadata"), conf);
    return Move.JSON.readTree(metadata).path("id").asText().equals(query);
  }

  /** Returns true if the batch behind a committed one is that of an adoption. */
  private static boolean isAdoption(
      Path checkpoint, long planned, Batch newest, Configuration conf) throws IOException {
    String next = newest.planned(StateCopy.changes(COMMAND, HoldfastConf.PROVIDER_CLASS));
    return Batch.plan(checkpoint, planned, conf).says(PlanEntry.of(next));
  }

  private static String provider(Path checkpoint, long planned, Configuration conf)
      throws IOException {
    return Batch.plan(checkpoint, planned, conf).setting(HoldfastConf.PROVIDER_KEY);
  }

  private static void refuseUnlessAdopted(Path checkpoint, Configuration conf) throws IOException {
    long newest = CommitLog.newestBatch(new Path(checkpoint, "offsets"), conf);
    String provider = provider(checkpoint, newest, conf);
    if (!provider.equals(HoldfastConf.PROVIDER_CLASS)) {
      throw new HoldfastException(
          String.format(
              "A query with state store provider %s has planned batch %d of %s meanwhile. Stop it, and"
                  + " start this one again. Nothing was changed.",
              provider, newest, checkpoint));
    }
  }
}
