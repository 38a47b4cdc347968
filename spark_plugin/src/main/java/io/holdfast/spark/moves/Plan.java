package io.holdfast.spark.moves;

import io.holdfast.spark.DamagedStateException;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.sparklog.PlanEntry;
import io.holdfast.spark.sparklog.QueryLog;
import java.util.Map;

/**
 * The batch without input that moves a checkpoint. The methods decide only from Spark's logs
 * whether a checkpoint may be moved, and refuse it with advice.
 *
 * @param newest the batch before it
 * @param base the batch whose state it gets
 * @param changes settings by which it differs from the batch before it
 * @param format the checkpoint format of its state
 */
public record Plan(
    String checkpoint, Batch newest, Batch base, Map<String, String> changes, String format) {
  private static final String ADOPT = "adopt";
  private static final String UNDO = "undo";
  private static final String ROLLBACK = "rollback --to ";
  private static final String BACK = "back to ";

  private static final String PACKAGE = "org.apache.spark.sql.execution.streaming.state.";

  private static final Map<String, String> SPARKS =
      Map.of(
          "rocksdb", PACKAGE + "RocksDBStateStoreProvider",
          "hdfs", PACKAGE + "HDFSBackedStateStoreProvider");

  /** Old partitions that a new one may have to read. */
  private static final int PARENTS_MAX = 16;

  private static final String STRICT = "spark.sql.streaming.statefulOperator.useStrictDistribution";

  public long number() {
    return newest.number() + 1;
  }

  /** The class that gets the state; empty if the state does not move. */
  public String provider() {
    return changes.getOrDefault(HoldfastConf.PROVIDER_KEY, "");
  }

  /** The batch whose entries the new one repeats, but for settings and ids. */
  Batch repeated() {
    return changes.get(HoldfastConf.MOVE_KEY).startsWith(ROLLBACK) ? base : newest;
  }

  String planned() {
    return repeated().planned(changes);
  }

  /** Lets Holdfast continue with state of Spark. Returns null if it has the state already. */
  public static Plan adoption(QueryLog log) {
    requireState(log);
    String provider = log.newest().provider();
    if (provider.equals(HoldfastConf.PROVIDER_CLASS)) {
      return done(log);
    }
    if (!SPARKS.containsValue(provider)) {
      throw refused(
          "%s has its state in %s. Only checkpoints of Spark's own providers can be adopted",
          log.shown(), provider);
    }
    return move(log, ADOPT, log.newest(), HoldfastConf.PROVIDER_CLASS, "2");
  }

  /**
   * Returns from an adoption to the state before it; null if that is done already. With {@code
   * completes}, the command completes what an earlier one did, whatever ran since.
   */
  public static Plan undo(QueryLog log, boolean completes) {
    requireState(log);
    String command = log.newest().setting(HoldfastConf.MOVE_KEY);
    if (command.equals(UNDO) || completes && SPARKS.containsValue(log.newest().provider())) {
      return done(log);
    }
    requireHoldfast(log);
    if (!command.equals(ADOPT)) {
      throw refused(
          "the newest batch of %s is no adoption. What came after it would be lost: use 'holdfast"
              + " leave'",
          log.shown());
    }
    Batch base = log.before();
    return move(log, UNDO, base, base.provider(), base.format());
  }

  /**
   * Lets a provider of Spark continue; null if it has the state already.
   *
   * @param to one of {@code rocksdb} and {@code hdfs}
   * @param format the checkpoint format
   */
  public static Plan leave(QueryLog log, String to, String format) {
    requireState(log);
    String provider = SPARKS.get(to);
    if (log.newest().provider().equals(provider)) {
      return done(log);
    }
    requireHoldfast(log);
    if (log.newest().isParked()) {
      throw refused(
          "%1$s has parked partitions, whose rows would be lost: 'holdfast parked %1$s' shows them."
              + " Let the query process them, or skip the rows, and try again",
          log.shown());
    }
    String command = String.format("leave --to %s --format %s", to, format);
    return move(log, command, log.newest(), provider, format);
  }

  /** Gives state of Holdfast another number of partitions; or the same, to complete a command. */
  public static Plan repartition(QueryLog log, int partitions) {
    requireState(log);
    requireHoldfast(log);
    String number = Integer.toString(partitions);
    String command = "repartition --partitions " + number;
    Map<String, String> changes =
        Map.of(Batch.PARTITIONS_KEY, number, HoldfastConf.MOVE_KEY, command);
    Plan plan = next(log, log.newest(), changes, "2");
    // Queries that began on an older Spark have none.
    if (!log.newest().setting(STRICT).equals("true")) {
      throw refused(
          "%s was not made with %s=true, so Spark may have partitioned its state by a part of the"
              + " key. It cannot get another number of partitions",
          log.shown(), STRICT);
    }
    if (log.newest().isParked()) {
      throw refused(
          "%1$s has parked partitions, whose input waits. 'holdfast parked %1$s' shows why. Let the"
              + " query process it, or skip the rows",
          log.shown());
    }
    return plan;
  }

  /**
   * Returns to the state and the positions of an earlier batch; null if that is done already. Two
   * batches do that, one after the other: Spark starts with the input between the two newest ones,
   * which must not go backwards.
   *
   * @param base the batch, from the checkpoint or from a tag
   * @param to its number, or the name of the tag
   */
  public static Plan rollback(QueryLog log, Batch base, String to) {
    requireState(log);
    requireHoldfast(log);
    String command = ROLLBACK + to;
    String newest = log.newest().setting(HoldfastConf.MOVE_KEY);
    if (newest.equals(BACK + to)) {
      return done(log);
    }
    if (newest.equals(command)) {
      return next(log, log.newest(), Map.of(HoldfastConf.MOVE_KEY, BACK + to), "2");
    }
    if (!base.provider().equals(HoldfastConf.PROVIDER_CLASS) || base.isParked()) {
      throw refused(
          "batch %d of %s has its state in %s, or has parked partitions. Choose a batch of Holdfast"
              + " whose rows are all processed",
          base.number(), log.shown(), base.provider());
    }
    if (base.hasViews() || base.partitions() != log.newest().partitions()) {
      throw refused(
          "batch %d of %s has %d partitions, and batch %d has %d. Choose a batch after the change of"
              + " partitions, or start a query from 'holdfast branch'",
          base.number(),
          log.shown(),
          base.partitions(),
          log.newest().number(),
          log.newest().partitions());
    }
    return next(log, base, Map.of(HoldfastConf.MOVE_KEY, command), "2");
  }

  /** Says why new partitions cannot each read so many old ones as views; null if they can. */
  public String tooManyParents(int parents) {
    return parents <= PARENTS_MAX
        ? null
        : String.format(
            "--partitions %s: each new partition would have to read %d of the %d old ones, and the"
                + " most is %d. Choose a number with a larger common divisor, or add --rewrite",
            changes.get(Batch.PARTITIONS_KEY), parents, newest.partitions(), PARENTS_MAX);
  }

  /** Refuses views of partitions that are views themselves. */
  public void requireRows() {
    if (newest.hasViews()) {
      throw refused(
          "%s has got %d partitions and no batch since. Start the query for one batch first, which"
              + " moves its rows, or add --rewrite",
          QueryLog.shown(checkpoint), newest.partitions());
    }
  }

  /** Refuses to delete files that an undo, or the provider of the query, may need. */
  public static void requirePurgeable(QueryLog log) {
    requireState(log);
    requireHoldfast(log);
    if (log.newest().setting(HoldfastConf.MOVE_KEY).equals(ADOPT)) {
      throw refused(
          "no batch of %s has run since the adoption, so its old files are the way back: start the"
              + " query with Holdfast first",
          log.shown());
    }
  }

  /**
   * Returns true if {@link #adoption} may continue with the state of a batch. {@code pending} is
   * the command that planned the batch and has not committed it, or empty.
   */
  public static boolean isAdoptable(String provider, String pending) {
    return pending.isEmpty() ? SPARKS.containsValue(provider) : pending.equals(ADOPT);
  }

  /** Refuses logs if one lacks entries that the other has. */
  public static void requireWhole(String checkpoint, long planned, long committed) {
    if (planned == committed || planned == committed + 1) {
      return;
    }
    boolean commitsGone = committed < planned;
    String log = commitsGone ? "commits" : "offsets";
    long last = Math.min(planned, committed);
    String otherLog = commitsGone ? "offsets" : "commits";
    String wayBack =
        last < 0
            ? "begin with a new checkpoint folder."
            : String.format(
                "go back to batch %1$d: delete the entries of %2$s behind %1$d, with their twins"
                    + " .N.crc, and start the query again. It then takes the rows since batch %1$d"
                    + " once more, so they must still be in the source.",
                last, otherLog);
    throw new DamagedStateException(
        String.format(
            "Checkpoint %s lacks entries of %s behind %s: its log of offsets ends at batch %s, and"
                + " its commit log at batch %s. Without them it is not known where the state is."
                + " Nothing was changed. Put the entries back from a copy. Without a copy, %s",
            checkpoint, log, ended(last), ended(planned), ended(committed), wayBack));
  }

  private static String ended(long batch) {
    return batch < 0 ? "none" : Long.toString(batch);
  }

  /** Returns true if a batch of this command is not its last one. */
  public static boolean goesOn(String command) {
    return command.startsWith(ROLLBACK);
  }

  /** Refuses a batch that a command, empty without one, has planned and not committed. */
  public static void requireNoMove(String checkpoint, String pending, long planned) {
    if (!pending.isEmpty()) {
      throw refused(
          "'holdfast %1$s %2$s' has begun and not ended: %2$s/commits/%3$d is missing. Run 'holdfast"
              + " %1$s %2$s --yes' again first. Nothing was changed.",
          pending, checkpoint, goesOn(pending) ? planned + 1 : planned);
    }
  }

  /** The command, without the checkpoint, finishes the move. */
  private static Plan move(
      QueryLog log, String command, Batch base, String provider, String format) {
    Map<String, String> changes =
        Map.of(HoldfastConf.PROVIDER_KEY, provider, HoldfastConf.MOVE_KEY, command);
    return next(log, base, changes, format);
  }

  /** Refuses a batch that has begun, unless the same command has planned it. */
  private static Plan next(QueryLog log, Batch base, Map<String, String> changes, String format) {
    Plan plan = new Plan(log.checkpoint(), log.newest(), base, changes, format);
    boolean own =
        log.planned() == plan.number() && log.plan().says(PlanEntry.of(plan.planned()));
    if (!own) {
      requireEnded(log);
    }
    return plan;
  }

  private static Plan done(QueryLog log) {
    requireEnded(log);
    return null;
  }

  private static void requireEnded(QueryLog log) {
    requireWhole(log.shown(), log.planned(), log.committed());
    if (log.planned() == log.committed()) {
      return;
    }
    requireNoMove(log.shown(), log.plan().setting(HoldfastConf.MOVE_KEY), log.planned());
    throw refused(
        "batch %d of %s has begun and not ended, and its sink may have some of its rows. Nothing was"
            + " changed. If the query runs, stop it. Then run it once with %s=%s and"
            + " trigger(availableNow=True), so that the batch ends",
        log.planned(),
        log.shown(),
        HoldfastConf.PROVIDER_KEY,
        log.plan().setting(HoldfastConf.PROVIDER_KEY));
  }

  private static void requireState(QueryLog log) {
    if (log.newest() == null || !log.hasState()) {
      requireEnded(log);
      throw refused(
          "%s has no state of a committed batch, so there is nothing to move. Start the query with a"
              + " new checkpoint folder",
          log.shown());
    }
  }

  private static void requireHoldfast(QueryLog log) {
    String provider = log.newest().provider();
    if (!provider.equals(HoldfastConf.PROVIDER_CLASS)) {
      throw refused("the state of %s is in %s, not in Holdfast", log.shown(), provider);
    }
  }

  private static UnsupportedStateException refused(String text, Object... facts) {
    return new UnsupportedStateException(String.format(text, facts));
  }
}
