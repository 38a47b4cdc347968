package io.holdfast.spark;

import static java.util.stream.Collectors.joining;
import static java.util.stream.Collectors.toSet;

import io.holdfast.spark.merged.Compression;
import java.util.Arrays;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.BinaryOperator;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkConf;
import org.apache.spark.network.util.JavaUtils;
import scala.Tuple2;

/**
 * Settings. All have Spark's state store prefix, because Spark ships such settings to executors.
 */
public final class HoldfastConf {
  /** One setting: its key, default and effect. */
  enum Setting {
    MAX_FILE_BYTES(
        "maxFileBytes",
        Long.toString(32L << 20),
        "Size, positive, at which a merged file is sealed and the next opened: a number of bytes, or"
            + " as Spark writes sizes (64m)."),
    COMPRESSION("compression", "lz4", "Compression of state segments: lz4 or none."),
    MAX_MEMORY_BYTES(
        "maxMemoryBytes",
        "0",
        "Limit on the native memory that the state of one executor takes, 0 for none: a number of"
            + " bytes, or as Spark writes sizes (4g)."),
    TARGET_MEMORY_BYTES(
        "targetMemoryBytes",
        "auto",
        "Native memory of one executor from which on its stores keep only what batches use, and leave"
            + " the rest in runs, 0 to keep everything: a number of bytes, or as Spark writes"
            + " sizes (3g), or auto for three quarters of maxMemoryBytes, or without that for a share"
            + " of what the executor has beside its heap."),
    LOCAL_CACHE_BYTES(
        "localCacheBytes",
        Long.toString(1L << 30),
        "Local disk of one executor for what it wrote to and read from a remote checkpoint while state"
            + " may leave memory, 0 for none: a number of bytes, or as Spark writes sizes (10g)."),
    CHANGE_JOURNAL(
        "changeJournal",
        "false",
        "true records every change of state in a batch for the change feed of the state reader,"
            + " even if the same batch replaced it. false records the last change of each key."),
    ADOPT(
        "adopt",
        "false",
        "true lets a query that starts with a checkpoint of Spark's own providers adopt it first, false"
            + " refuses the checkpoint."),
    ISOLATE_FAILURES(
        "isolateFailures",
        "false",
        "true completes a batch even if the task of one state partition keeps failing, false fails"
            + " the batch."),
    ISOLATION_MAX_RATIO(
        "isolationMaxRatio",
        "0.3",
        "Share of the partitions of an operator that may be parked, above 0 and at most 1."),
    ISOLATION_MAX_BATCHES(
        "isolationMaxBatches",
        "100",
        "Batches whose input may be parked for one partition: a whole number from 1 to 1000."),
    ISOLATION_MAX_BYTES(
        "isolationMaxBytes",
        Long.toString(1L << 30),
        "Input that may be parked for one partition, positive: a number of bytes, or as Spark writes"
            + " sizes (64m)."),
    ISOLATION_RERUN(
        "isolationRerun",
        "fail",
        "fail ends a query if a partition fails in a batch that runs again after a restart."
            + " at-least-once parks the partition, and the sink may get its rows twice."),
    ISOLATION_ATTEMPTS(
        "isolationAttempts",
        "2",
        "Failures of a task in one batch after which its partition is parked: a whole number from 1"
            + " to 1000. Spark's limit on failures comes first."),
    ISOLATION_END(
        "isolationEnd",
        "fail",
        "fail ends a query with the trigger availableNow or once with an error if rows are parked in"
            + " the end. log ends it without one."),
    REBALANCE(
        "rebalance",
        "auto",
        "auto moves state to executors that have less of it while dynamic allocation is on, off"
            + " leaves it where it is."),
    REBALANCE_MAX_MOVES(
        "rebalanceMaxMoves",
        "64",
        "Partitions that move between two batches of a query: a whole number from 1 to 99999."),
    SPARK_FILES(
        "sparkFiles",
        "true",
        "true lets Holdfast write the files that Spark itself keeps in a checkpoint, durably and"
            + " with few requests. false leaves them to Spark's own file manager.");

    final String key;
    final String defaultValue;
    final String doc;

    Setting(String name, String defaultValue, String doc) {
      this.key = PREFIX + name;
      this.defaultValue = defaultValue;
      this.doc = doc;
    }
  }

  public static final String PREFIX = "spark.sql.streaming.stateStore.holdfast.";
  public static final String PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass";
  public static final String PROVIDER_CLASS = "io.holdfast.spark.HoldfastStateStoreProvider";
  static final String PLUGIN_CLASS = "io.holdfast.spark.HoldfastPlugin";

  /** Key of the setting by which a query adopts its checkpoint. */
  public static final String ADOPT_KEY = Setting.ADOPT.key;

  public static final String FORMAT_KEY = "spark.sql.streaming.stateStore.checkpointFormatVersion";
  public static final String FILE_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass";
  public static final String FILE_MANAGER_CLASS =
      "io.holdfast.spark.HoldfastCheckpointFileManager";

  /** In a planned batch, the command that planned it to move the checkpoint. No session has it. */
  public static final String MOVE_KEY = PREFIX + "move";

  /** A local property of the threads of a query. */
  public static final String QUERY_ID_KEY = "sql.streaming.queryId";

  /** Key of the id of a query's run in the Hadoop configuration of its tasks. */
  public static final String RUN_ID_KEY = "sql.streaming.runId";

  /** A local property of the tasks of a running query, and of no others. */
  public static final String BATCH_ID_KEY = "streaming.sql.batchId";

  /** Settings of Spark that the driver reads, with Spark's defaults. */
  public static final String RETAINED_KEY = "spark.sql.streaming.minBatchesToRetain";

  public static final int RETAINED_DEFAULT = 100;
  public static final String EXTRA_SPACE_KEY =
      "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint";
  public static final double EXTRA_SPACE_DEFAULT = 0.3;

  /** Folder below {@code <checkpoint>/state} that holds the merged files. */
  public static final String STATE_FOLDER = "holdfast";

  public final long maxFileBytes;
  public final Compression compression;

  /** 0 for no limit. */
  public final long maxMemoryBytes;

  /** Empty if the executor decides, 0 for none. */
  public final OptionalLong targetMemoryBytes;

  /** Local disk for remote state that may leave memory. */
  public final long localCacheBytes;

  /** True if commits record every operation. */
  final boolean changeJournal;

  public final boolean isolateFailures;
  public final double isolationMaxRatio;
  public final int isolationMaxBatches;
  public final long isolationMaxBytes;

  /** True if a batch that runs again may park a partition whose rows the sink may have. */
  public final boolean isolationRerunsPark;

  public final int isolationAttempts;

  /** Reads the settings that travelled with a state store. */
  public HoldfastConf(Map<String, String> values) {
    maxFileBytes = bytes(values, Setting.MAX_FILE_BYTES, 1);
    maxMemoryBytes = bytes(values, Setting.MAX_MEMORY_BYTES, 0);
    targetMemoryBytes = targetBytes(values);
    localCacheBytes = bytes(values, Setting.LOCAL_CACHE_BYTES, 0);
    changeJournal = flag(values, Setting.CHANGE_JOURNAL);
    isolateFailures = flag(values, Setting.ISOLATE_FAILURES);
    isolationMaxRatio = number(values, Setting.ISOLATION_MAX_RATIO, 1);
    isolationMaxBatches = (int) number(values, Setting.ISOLATION_MAX_BATCHES, 1000);
    isolationMaxBytes = bytes(values, Setting.ISOLATION_MAX_BYTES, 1);
    String rerun = text(values, Setting.ISOLATION_RERUN);
    isolationRerunsPark = rerun.equals("at-least-once");
    if (!isolationRerunsPark && !rerun.equals("fail")) {
      throw wrong(Setting.ISOLATION_RERUN, rerun);
    }
    isolationAttempts = (int) number(values, Setting.ISOLATION_ATTEMPTS, 1000);
    isolationEndFails(values);
    flag(values, Setting.SPARK_FILES);
    flag(values, Setting.ADOPT);
    maxMoves(values::getOrDefault);
    String named = text(values, Setting.COMPRESSION);
    compression = Compression.named(named).orElseThrow(() -> wrong(Setting.COMPRESSION, named));
  }

  /** The settings of an application. */
  public static HoldfastConf of(SparkConf conf) {
    return new HoldfastConf(
        Arrays.stream(conf.getAll()).collect(Collectors.toMap(Tuple2::_1, Tuple2::_2)));
  }

  /** Returns true if Holdfast, and not Spark, writes Spark's own files of a checkpoint. */
  static boolean writesSparkFiles(Configuration conf) {
    // The constructor above refuses a wrong value when the query starts.
    return conf.getBoolean(Setting.SPARK_FILES.key, true);
  }

  /** Returns true if a query may adopt a checkpoint of Spark's own providers. */
  static boolean adopts(Configuration conf) {
    return conf.getBoolean(ADOPT_KEY, false);
  }

  /**
   * Returns whether a query isolates failures of partitions.
   *
   * @param get finds a setting, or returns the default that it is given
   */
  public static boolean isolatesFailures(BinaryOperator<String> get) {
    return Boolean.parseBoolean(found(get, Setting.ISOLATE_FAILURES));
  }

  /** Returns whether a query fails that ends while rows are parked. */
  public static boolean isolationEndFails(Map<String, String> values) {
    String end = text(values, Setting.ISOLATION_END);
    if (!end.equals("fail") && !end.equals("log")) {
      throw wrong(Setting.ISOLATION_END, end);
    }
    return end.equals("fail");
  }

  /**
   * Returns how many partitions of a query may move between two batches; 0 for none.
   *
   * @param get finds a setting, or returns the default that it is given
   */
  public static int maxMoves(BinaryOperator<String> get) {
    String rebalance = found(get, Setting.REBALANCE);
    String most = found(get, Setting.REBALANCE_MAX_MOVES);
    if (!rebalance.equals("auto") && !rebalance.equals("off")) {
      throw wrong(Setting.REBALANCE, rebalance);
    }
    if (!most.matches("[1-9][0-9]{0,4}")) {
      throw wrong(Setting.REBALANCE_MAX_MOVES, most);
    }
    return rebalance.equals("auto") ? Integer.parseInt(most) : 0;
  }

  private static String found(BinaryOperator<String> get, Setting setting) {
    return get.apply(setting.key, setting.defaultValue).trim();
  }

  /** The message for a checkpoint of another format than 2. */
  public static String formatTooOld(String found) {
    return String.format(
        "Holdfast needs state store checkpoint format 2, found %s. Set %s=2 (holdfast.configure"
            + " does) and start with a new checkpoint folder: a checkpoint keeps the format it was"
            + " made with.",
        found, FORMAT_KEY);
  }

  private static String text(Map<String, String> values, Setting setting) {
    return values.getOrDefault(setting.key, setting.defaultValue).trim();
  }

  private static boolean flag(Map<String, String> values, Setting setting) {
    String text = text(values, setting);
    boolean isTrue = text.equalsIgnoreCase("true");
    if (isTrue || text.equalsIgnoreCase("false")) {
      return isTrue;
    }
    throw wrong(setting, text);
  }

  /** A number above 0. */
  private static double number(Map<String, String> values, Setting setting, double most) {
    String text = text(values, setting);
    try {
      double number = Double.parseDouble(text);
      if (number > 0 && number <= most) {
        return number;
      }
    } catch (NumberFormatException e) {
      // All mistakes have the one message below.
    }
    throw wrong(setting, text);
  }

  private static OptionalLong targetBytes(Map<String, String> values) {
    Setting setting = Setting.TARGET_MEMORY_BYTES;
    return text(values, setting).equalsIgnoreCase(setting.defaultValue)
        ? OptionalLong.empty()
        : OptionalLong.of(bytes(values, setting, 0));
  }

  private static long bytes(Map<String, String> values, Setting setting, long least) {
    String text = text(values, setting);
    try {
      long bytes = JavaUtils.byteStringAsBytes(text);
      if (bytes >= least) {
        return bytes;
      }
    } catch (IllegalArgumentException e) {
      // All mistakes have the one message below.
    }
    throw wrong(setting, text);
  }

  /** All keys, for messages. */
  public static String keys() {
    return Arrays.stream(Setting.values()).map(setting -> setting.key).collect(joining(", "));
  }

  /** The keys among {@code keys} that are no settings of Holdfast. */
  public static List<String> unknown(Collection<String> keys) {
    Set<String> known =
        Arrays.stream(Setting.values()).map(setting -> setting.key).collect(toSet());
    return keys.stream().filter(key -> !known.contains(key)).sorted().toList();
  }

  private static IllegalArgumentException wrong(Setting setting, String found) {
    return new IllegalArgumentException(
        setting.key + ": " + setting.doc + " Found '" + found + "'.");
  }
}
