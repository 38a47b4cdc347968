package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.moves.Plan;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.sparklog.PlanEntry;
import io.holdfast.spark.sparklog.QueryLog;
import io.holdfast.spark.sparklog.SparkFile;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Function;
import java.util.function.Predicate;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.util.UninterruptibleThread;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Refuses checkpoints that Holdfast cannot continue, before anything is written. Otherwise Spark
 * would silently continue with the provider that the checkpoint remembers.
 */
public final class CheckpointGuard {
  private static final Logger LOG = LoggerFactory.getLogger(CheckpointGuard.class);

  private CheckpointGuard() {}

  public static boolean wantsHoldfast(Configuration conf) {
    return HoldfastConf.PROVIDER_CLASS.equals(conf.get(HoldfastConf.PROVIDER_KEY))
        || HoldfastConf.isDefault(conf::get);
  }

  /** Refuses to write with a session that selects Holdfast without checkpoint format 2. */
  public static void refuseOldFormat(Configuration conf, Path path) {
    String format = conf.get(HoldfastConf.FORMAT_KEY, "1");
    if (wantsHoldfast(conf) && !format.equals("2")) {
      throw new UnsupportedStateException(
          path + " was not written. " + HoldfastConf.formatTooOld(format));
    }
  }

  /** Refuses settings that would fail the tasks of a query; warns of unknown settings. */
  public static void checkSettings(Configuration conf) {
    if (!wantsHoldfast(conf)) {
      return;
    }
    Map<String, String> settings = new HashMap<>();
    conf.getPropsWithPrefix(HoldfastConf.PREFIX)
        .forEach((name, value) -> settings.put(HoldfastConf.PREFIX + name, value));
    new HoldfastConf(settings);
    for (String key : HoldfastConf.unknown(settings.keySet())) {
      LOG.warn(
          "Holdfast knows no setting {}: it has no effect. There are {}", key, HoldfastConf.keys());
    }
  }

  /** True if a query that selects Holdfast reads a plan. State readers, on other threads, pass. */
  public static boolean isRestart(Configuration conf, Path path) {
    return wantsHoldfast(conf)
        && SparkFile.of(path).kind() == SparkFile.Kind.PLAN
        && Thread.currentThread() instanceof UninterruptibleThread;
  }

  /** Returns true if an adoption lets Holdfast continue a checkpoint with this newest plan. */
  public static boolean isAdoptable(
      Predicate<Path> exists, Function<Path, FSDataInputStream> open, Path path) {
    PlanEntry plan = read(open, path);
    String provider = plan.setting(HoldfastConf.PROVIDER_KEY);
    return Plan.isAdoptable(provider, pendingMove(exists, plan, path))
        && exists.test(new Path(SparkFile.of(path).checkpoint(), "state"));
  }

  /** The command that planned a batch, if it has not ended; else empty. */
  private static String pendingMove(Predicate<Path> exists, PlanEntry plan, Path path) {
    String move = plan.setting(HoldfastConf.MOVE_KEY);
    SparkFile file = SparkFile.of(path);
    Path commit = Batch.entry(file.checkpoint(), "commits", file.number());
    boolean hasEnded = move.isEmpty() || (exists.test(commit) && !Plan.goesOn(move));
    return hasEnded ? "" : move;
  }

  /**
   * Refuses to restart a stateful query if its offset log names another provider or none, or if a
   * command has half changed its checkpoint. {@code open} has no such check.
   */
  public static void refuseForeignCheckpoint(
      Predicate<Path> exists, Function<Path, FSDataInputStream> open, Path path) {
    Path checkpoint = SparkFile.of(path).checkpoint();
    if (!exists.test(new Path(checkpoint, "state"))) {
      return;
    }
    PlanEntry plan = read(open, path);
    Plan.requireNoMove(
        QueryLog.shown(checkpoint.toString()),
        pendingMove(exists, plan, path),
        SparkFile.of(path).number());
    String provider = plan.setting(HoldfastConf.PROVIDER_KEY);
    // Spark reports an entry that is cut.
    if (provider.equals(HoldfastConf.PROVIDER_CLASS) || !plan.isWhole()) {
      return;
    }
    if (provider.isEmpty()) {
      throw new UnsupportedStateException(
          String.format(
              "Checkpoint %s does not record which state store provider made it (in %s): a version"
                  + " of Spark did that recorded none, such as 2.1, with its own provider."
                  + " Holdfast cannot continue it and nothing was changed. Either set %s to"
                  + " Spark's own provider for this query, or start it with a new checkpoint"
                  + " folder.",
              checkpoint, path, HoldfastConf.PROVIDER_KEY));
    }
    throw new UnsupportedStateException(
        String.format(
            "Checkpoint %1$s was made with state store provider %2$s (recorded in %3$s). Nothing"
                + " was changed. To let Holdfast go on with it, run 'holdfast adopt %1$s', or set"
                + " %4$s=true. To go on with its provider, set %5$s=%2$s for this query.",
            checkpoint, provider, path, HoldfastConf.ADOPT_KEY, HoldfastConf.PROVIDER_KEY));
  }

  /**
   * Refuses to restart a stateful query if one of its logs lacks entries that the other has. Spark
   * would ask stores for state without an id, or with the id of another batch.
   */
  public static void refuseTornLogs(Configuration conf, Path checkpoint) {
    try {
      Plan.requireWhole(
          checkpoint.toString(),
          CommitLog.newestBatch(new Path(checkpoint, "offsets"), conf),
          CommitLog.newestBatch(new Path(checkpoint, "commits"), conf));
    } catch (IOException e) {
      throw new HoldfastException("Cannot list the logs of " + checkpoint, e);
    }
  }

  private static PlanEntry read(Function<Path, FSDataInputStream> open, Path path) {
    try (InputStream in = open.apply(path)) {
      return PlanEntry.of(new String(in.readAllBytes(), StandardCharsets.UTF_8));
    } catch (IOException e) {
      throw new HoldfastException("Cannot read " + path, e);
    }
  }
}
