package io.holdfast.spark.moves;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.sparklog.QueryLog;
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

  private Adoption() {}

  /**
   * Adopts the checkpoint of a query, on its thread, before Spark reads its logs. One of Spark's
   * providers has the state of its newest planned batch, or an adoption did not end.
   *
   * @return false if the thread runs another query, whose code reads this checkpoint
   * @throws io.holdfast.spark.UnsupportedStateException if a batch has to end before
   */
  public static boolean atStart(Path checkpoint, Configuration conf) throws IOException {
    SparkSession session = SparkSession$.MODULE$.getActiveSession().get();
    String query = session.sparkContext().getLocalProperty(HoldfastConf.QUERY_ID_KEY);
    if (!QueryLog.isOf(query, checkpoint, conf)) {
      return false;
    }
    Plan plan = Plan.adoption(QueryLog.read(checkpoint.toString(), conf));
    if (plan == null) {
      return true;
    }
    StateCopy copy = new StateCopy(session, plan);
    LOG.info(
        "Adopting {}: copying the state of batch {}, {} partitions, from {} to Holdfast",
        checkpoint,
        plan.newest().number(),
        copy.partitions(),
        plan.newest().provider());
    copy.run(true);
    LOG.info("Adopting {}: copied {} bytes of rows", checkpoint, copy.doneBytes());
    if (!copy.plan()) {
      refuseUnlessAdopted(checkpoint, conf);
      LOG.info("Adopting {}: another driver has adopted it meanwhile", checkpoint);
      return true;
    }
    LOG.info("Adopting {}: planned batch {}, which has no input", checkpoint, plan.number());
    copy.commit();
    LOG.info("Adopted {}: committed batch {}. The query goes on", checkpoint, plan.number());
    return true;
  }

  private static void refuseUnlessAdopted(Path checkpoint, Configuration conf) throws IOException {
    long newest = CommitLog.newestBatch(new Path(checkpoint, "offsets"), conf);
    String provider = Batch.plan(checkpoint, newest, conf).setting(HoldfastConf.PROVIDER_KEY);
    if (!provider.equals(HoldfastConf.PROVIDER_CLASS)) {
      throw new HoldfastException(
          String.format(
              "A query with state store provider %s has planned batch %d of %s meanwhile. Stop it, and"
                  + " start this one again. Nothing was changed.",
              provider, newest, checkpoint));
    }
  }
}
