package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.isolation.driver.EndOfInput;
import java.util.Optional;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext;
import org.apache.spark.sql.RuntimeConfig;
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
  /** Checkpoints of queries whose session selected Holdfast when they were started. */
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
    if (CheckpointGuard.wantsHoldfast(conf)) {
      wanted.add(path);
    }
  }

  /** Called when plans are listed. The thread of a query does so before it notes the provider. */
  void initializing(SparkContext spark, Path checkpoint, Configuration conf) {
    if (HoldfastConf.PROVIDER_CLASS.equals(conf.get(HoldfastConf.PROVIDER_KEY))) {
      return; // by an earlier list, or by the user
    }
    MicroBatchExecution query = EndOfInput.queryOfThread(spark);
    if (query != null
        && checkpoint.equals(new Path(query.resolvedCheckpointRoot()))
        && wants(checkpoint, conf)) {
      RuntimeConfig copy = query.sparkSessionForStream().conf();
      copy.set(HoldfastConf.PROVIDER_KEY, HoldfastConf.PROVIDER_CLASS);
      conf.set(HoldfastConf.PROVIDER_KEY, HoldfastConf.PROVIDER_CLASS);
    }
  }

  /** Refuses a plan of a query with state that runs with another provider than it wants. */
  public static void requireWanted(SparkPlan plan, Optional<DefaultProvider> running) {
    MicroBatchExecution query =
        plan.exists(StateStoreWriter.class::isInstance)
            ? EndOfInput.queryOfThread(plan.sparkContext())
            : null;
    if (query == null || query.sparkSessionForStream() != plan.session()) {
      return;
    }
    SQLConf conf = plan.conf();
    String manager = conf.getConfString(HoldfastConf.FILE_MANAGER_KEY, null);
    boolean isDefault = HoldfastConf.isDefault(conf::getConfString);
    if (isDefault) {
      HoldfastConf.requireFileManager(manager);
    }
    Path checkpoint = new Path(query.resolvedCheckpointRoot());
    Configuration hadoop = plan.session().sessionState().newHadoopConf();
    // Another file manager did not say what this run wants.
    boolean isKnown = HoldfastConf.FILE_MANAGER_CLASS.equals(manager);
    if (isDefault || isKnown && running.filter(of -> of.wants(checkpoint, hadoop)).isPresent()) {
      throw new UnsupportedStateException(
          String.format(
              "Nothing was committed to %s: Spark %s runs this query with %s, although its session"
                  + " selects Holdfast. Its first batch may have named that provider: start it with"
                  + " a new checkpoint folder. If that does not help, set %s=%s, which Real-Time"
                  + " Mode refuses.",
              checkpoint,
              plan.sparkContext().version(),
              conf.stateStoreProviderClass(),
              HoldfastConf.PROVIDER_KEY,
              HoldfastConf.PROVIDER_CLASS));
    }
  }

  private boolean wants(Path checkpoint, Configuration conf) {
    return wanted.contains(SparkRecords.qualified(checkpoint, conf));
  }
}
