package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.isolation.driver.EndOfInput;
import io.holdfast.spark.sparklog.PlanEntry;
import io.holdfast.spark.storage.AtomicStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.commons.io.output.TeeOutputStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import org.apache.spark.sql.internal.SQLConf;

/**
 * Makes Holdfast the provider of queries whose session sets none. Spark 4.3 starts Real-Time Mode
 * only in a session that sets none or RocksDB. It copies the session, sets RocksDB in the copy, and
 * looks for the newest plan. Then it notes the provider of the copy. So it changes in between.
 */
public final class DefaultProvider {
  /** Checkpoints of queries whose session set no provider when they were started. */
  private final Set<Path> wanted = ConcurrentHashMap.newKeySet();

  /** Called before the first session is made. The settings of a builder replace all others. */
  static void replaceNamed(SparkConf conf) {
    if (conf.get(HoldfastConf.DEFAULT_KEY, "").equals("always")) {
      conf.remove(HoldfastConf.PROVIDER_KEY);
    }
  }

  /** Called with the settings of the session that starts a query. */
  void starting(Path checkpoint, Configuration conf) {
    Path path = SparkRecords.qualified(checkpoint, conf);
    wanted.remove(path);
    if (HoldfastConf.isDefault(conf::get)) {
      wanted.add(path);
    }
  }

  /** Called when plans are listed. The thread of a query does so before it notes the provider. */
  void initializing(SparkContext spark, Path checkpoint, Configuration conf) {
    MicroBatchExecution query = EndOfInput.queryOfThread(spark);
    if (query != null
        && checkpoint.equals(new Path(query.resolvedCheckpointRoot()))
        && wanted.contains(SparkRecords.qualified(checkpoint, conf))) {
      query
          .sparkSessionForStream()
          .conf()
          .set(HoldfastConf.PROVIDER_KEY, HoldfastConf.PROVIDER_CLASS);
      conf.set(HoldfastConf.PROVIDER_KEY, HoldfastConf.PROVIDER_CLASS);
    }
  }

  /** Refuses a plan of a query with state that has another provider, although it wants Holdfast. */
  public static void requireWanted(SparkPlan plan) {
    MicroBatchExecution query =
        plan.exists(StateStoreWriter.class::isInstance)
            ? EndOfInput.queryOfThread(plan.sparkContext())
            : null;
    if (query != null && query.sparkSessionForStream() == plan.session()) {
      SQLConf conf = query.sparkSession().sessionState().conf();
      if (HoldfastConf.isDefault(conf::getConfString)) {
        HoldfastConf.requireFileManager(conf.getConfString(HoldfastConf.FILE_MANAGER_KEY, null));
        throw another(query.resolvedCheckpointRoot(), plan.conf().stateStoreProviderClass());
      }
    }
  }

  /** The first plan of a checkpoint. It is not published if it names another provider. */
  public static AtomicStream firstPlan(AtomicStream spark, Path path) {
    ByteArrayOutputStream copy = new ByteArrayOutputStream();
    return new AtomicStream(new TeeOutputStream(spark, copy)) {
      @Override
      protected void publish() throws IOException {
        String provider =
            PlanEntry.of(copy.toString(StandardCharsets.UTF_8)).setting(HoldfastConf.PROVIDER_KEY);
        if (!provider.isEmpty() && !provider.equals(HoldfastConf.PROVIDER_CLASS)) {
          spark.cancel();
          throw another(path.toString(), provider);
        }
        spark.close();
      }

      @Override
      protected void discard() {
        spark.cancel();
      }
    };
  }

  private static UnsupportedStateException another(String place, String provider) {
    return new UnsupportedStateException(
        String.format(
            "Nothing was committed to %s: Spark %s chooses %s for a query whose session sets no"
                + " provider, in another way than this Holdfast knows. Set %s=%s for this query,"
                + " which Real-Time Mode refuses, or use an older Spark.",
            place,
            org.apache.spark.package$.MODULE$.SPARK_VERSION(),
            provider,
            HoldfastConf.PROVIDER_KEY,
            HoldfastConf.PROVIDER_CLASS));
  }
}
