package io.holdfast.spark;

import static java.util.stream.Collectors.joining;
import static java.util.stream.Collectors.toSet;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.merged.Compression;
import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Locale;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.function.BinaryOperator;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkEnv;
import org.apache.spark.network.util.JavaUtils;
import scala.Tuple2;

/**
 * Settings, all with Spark's state store prefix, because Spark ships such settings to executors.
 * {@code settings.json} of the Python package declares them.
 */
public final class HoldfastConf {
  public static final String PREFIX = "spark.sql.streaming.stateStore.holdfast.";
  public static final String PROVIDER_KEY = "spark.sql.streaming.stateStore.providerClass";
  public static final String PROVIDER_CLASS = "io.holdfast.spark.HoldfastStateStoreProvider";
  private static final String PLUGIN_CLASS = "io.holdfast.spark.HoldfastPlugin";

  /** The only plugin of a server that PySpark starts for a local session of Spark Connect. */
  private static final String CONNECT_PLUGIN_CLASS =
      "org.apache.spark.sql.connect.SparkConnectPlugin";

  public static final String ADOPT_KEY = PREFIX + "adopt";

  /**
   * {@code true}: Holdfast serves queries whose session sets no provider. {@code always}: it also
   * replaces a provider in the settings of the application.
   */
  public static final String DEFAULT_KEY = PREFIX + "default";

  public static final String FORMAT_KEY = "spark.sql.streaming.stateStore.checkpointFormatVersion";
  public static final String FILE_MANAGER_KEY = "spark.sql.streaming.checkpointFileManagerClass";
  public static final String FILE_MANAGER_CLASS = "io.holdfast.spark.HoldfastCheckpointFileManager";

  /** In a planned batch, the command that planned it to move the checkpoint. No session has it. */
  public static final String MOVE_KEY = PREFIX + "move";

  /** A local property of a query's threads. */
  public static final String QUERY_ID_KEY = "sql.streaming.queryId";

  /** Key of the id of a query's run, in the Hadoop configuration of its tasks. */
  public static final String RUN_ID_KEY = "sql.streaming.runId";

  /** A local property of the tasks of a running query, and of no others. */
  public static final String BATCH_ID_KEY = "streaming.sql.batchId";

  /** Settings of Spark that the driver reads, with Spark's defaults. */
  public static final String RETAINED_KEY = "spark.sql.streaming.minBatchesToRetain";

  public static final int RETAINED_DEFAULT = 100;
  public static final String EXTRA_SPACE_KEY =
      "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint";
  public static final double EXTRA_SPACE_DEFAULT = 0.3;

  /** The folder of merged files, in {@code <checkpoint>/state}. */
  public static final String STATE_FOLDER = "holdfast";

  private static final String RESOURCE = "/holdfast-settings.json";

  /** The declarations, by the names of the options in Python. */
  private static final Map<String, JsonNode> DECLARED = declared();

  public final long maxFileBytes;
  public final Compression compression;
  public final long maxMemoryBytes; // 0 for no limit
  public final OptionalLong targetMemoryBytes; // empty if the executor decides, 0 for none
  public final long localCacheBytes; // local disk for remote state that may leave memory
  public final boolean commitCopies; // on object stores
  final boolean changeJournal; // commits record every operation

  public final boolean isolateFailures;
  public final double isolationMaxRatio;

  /**
   * Bound on batches with pending rows of one partition. A partition that fails for so long needs a
   * repair, and each batch costs it a pass when it catches up.
   */
  public final int isolationMaxBatches = 100;

  public final long isolationMaxBytes;

  /** A batch that runs again may park a partition whose rows the sink may have. */
  public final boolean isolationRerunsPark;

  /**
   * Failures of a task in one batch after which its partition is parked. One may be an executor's
   * fault. Spark allows four: if an executor dies while it parks, one try is left.
   */
  public final int isolationAttempts = 2;

  /**
   * Bounds on bad rows of one source in a batch, and their place.
   *
   * @param ratio of the rows of the source
   * @param deadLetters a folder
   */
  public record BadRows(long max, double ratio, String deadLetters) {}

  public final BadRows badRows;

  public HoldfastConf(Map<String, String> values) {
    BinaryOperator<String> get = values::getOrDefault;
    DECLARED.keySet().forEach(name -> checked(get, name));
    maxFileBytes = bytes(get, "max_file_bytes");
    maxMemoryBytes = bytes(get, "max_memory_bytes");
    targetMemoryBytes =
        found(get, "target_memory_bytes").equals("auto")
            ? OptionalLong.empty()
            : OptionalLong.of(bytes(get, "target_memory_bytes"));
    localCacheBytes = bytes(get, "local_cache_bytes");
    commitCopies = found(get, "commit_copies").equals("1");
    changeJournal = flag(get, "change_journal");
    isolateFailures = flag(get, "isolate_failures");
    isolationMaxRatio = Double.parseDouble(found(get, "isolation_max_ratio"));
    isolationMaxBytes = bytes(get, "isolation_max_bytes");
    isolationRerunsPark = found(get, "isolation_rerun").equals("at-least-once");
    badRows =
        new BadRows(
            Long.parseLong(found(get, "bad_rows_max")),
            Double.parseDouble(found(get, "bad_rows_max_ratio")),
            deadLetters(get));
    if (setsRowsAside(get) && badRows.deadLetters().equals("none")) {
      throw new IllegalArgumentException(
          "badRows=dead-letter needs "
              + key(DECLARED.get("dead_letters"))
              + ", a folder for the rows (dead_letters of holdfast.configure).");
    }
    compression = Compression.named(found(get, "compression")).orElseThrow();
  }

  public static HoldfastConf of(SparkConf conf) {
    return new HoldfastConf(
        Arrays.stream(conf.getAll()).collect(Collectors.toMap(Tuple2::_1, Tuple2::_2)));
  }

  /** Returns true if a session sets no provider and Holdfast is the default. */
  public static boolean isDefault(BinaryOperator<String> get) {
    return get.apply(PROVIDER_KEY, "").isEmpty()
        && !get.apply(DEFAULT_KEY, "false").equalsIgnoreCase("false");
  }

  /** The file manager makes physical files durable before their batch commits. */
  public static void requireFileManager(String found) {
    if (!FILE_MANAGER_CLASS.equals(found)) {
      throw new UnsupportedStateException(
          String.format(
              "%s must be %s, found %s: without it physical files would not be durable when their"
                  + " batch commits. Use holdfast.configure(builder), or all lines of 'holdfast"
                  + " conf'.",
              FILE_MANAGER_KEY, FILE_MANAGER_CLASS, found));
    }
  }

  /** Returns true if Holdfast, and not Spark, writes Spark's own files of a checkpoint. */
  static boolean writesSparkFiles(Configuration conf) {
    return flag(conf::get, "spark_files");
  }

  /** Returns true if a query may adopt a checkpoint of Spark's own providers. */
  static boolean adopts(Configuration conf) {
    return flag(conf::get, "adopt");
  }

  /** {@code get} finds a setting or a default. */
  public static boolean isolatesFailures(BinaryOperator<String> get) {
    return flag(get, "isolate_failures");
  }

  /** The folder of dead letters. Paths keep their case. */
  public static String deadLetters(BinaryOperator<String> get) {
    return given(get, "dead_letters");
  }

  /** {@code get} finds a setting or a default. */
  public static boolean setsRowsAside(BinaryOperator<String> get) {
    return found(get, "bad_rows").equals("dead-letter");
  }

  /** Returns true if state may move between two batches of a query. */
  public static boolean rebalances(Configuration conf) {
    return found(conf::get, "rebalance").equals("auto");
  }

  /** Returns a side of the plugin; fails if it is null, because it does not run. */
  public static <T> T requireRunning(T side) {
    if (side == null) {
      SparkEnv spark = SparkEnv.get();
      boolean isReplaced =
          spark != null && spark.conf().get("spark.plugins", "").equals(CONNECT_PLUGIN_CLASS);
      throw new HoldfastException(
          "The Holdfast plugin is not running in this application: "
              + (isReplaced
                  ? "PySpark started a Spark Connect server for it, as for 'spark-pipelines run',"
                      + " and replaced spark.plugins. Start a server with the lines of 'holdfast"
                      + " conf' in its spark-defaults.conf, and name it: 'spark-pipelines --remote"
                      + " sc://HOST:15002 run', or SparkSession.builder.remote."
                  : "spark.plugins must contain "
                      + PLUGIN_CLASS
                      + " when the application starts. Use holdfast.configure(builder) before the"
                      + " first SparkSession is created, or the lines of 'holdfast conf' in"
                      + " spark-defaults.conf."));
    }
    return side;
  }

  public static String formatTooOld(String found) {
    return String.format(
        "Holdfast needs state store checkpoint format 2, found %s. Set %s=2 (holdfast.configure"
            + " does) and start with a new checkpoint folder: a checkpoint keeps the format it was"
            + " made with.",
        found, FORMAT_KEY);
  }

  private static Map<String, JsonNode> declared() {
    try (InputStream in = HoldfastConf.class.getResourceAsStream(RESOURCE)) {
      Map<String, JsonNode> declared = new LinkedHashMap<>();
      for (Map.Entry<String, JsonNode> one : new ObjectMapper().readTree(in).properties()) {
        declared.put(one.getKey(), one.getValue());
      }
      return declared;
    } catch (IOException e) {
      throw new HoldfastException("Cannot read " + RESOURCE + " of the Holdfast jar", e);
    }
  }

  private static void checked(BinaryOperator<String> get, String name) {
    JsonNode declared = DECLARED.get(name);
    if (!isAllowed(found(get, name), declared)) {
      String key = key(declared);
      String expected = declared.get("expected").asText();
      throw new IllegalArgumentException(
          "%s: expected %s. Found '%s'.".formatted(key, expected, get.apply(key, "").trim()));
    }
  }

  private static boolean isAllowed(String found, JsonNode declared) {
    for (JsonNode name : declared.path("names")) {
      if (name.asText().equals(found)) {
        return true;
      }
    }
    try {
      return switch (declared.get("type").asText()) {
        case "flag" -> found.equals("true") || found.equals("false");
        case "path" -> !found.isEmpty();
        case "count" -> Long.parseLong(found) >= declared.get("least").asLong();
        case "share" -> Double.parseDouble(found) > 0 && Double.parseDouble(found) <= 1;
        // The other bounds are the bounds of the options in Python. Tests set smaller sizes.
        case "size" ->
            JavaUtils.byteStringAsBytes(found) >= Math.min(1, declared.get("least").asLong());
        default -> false;
      };
    } catch (IllegalArgumentException e) {
      return false;
    }
  }

  private static String key(JsonNode declared) {
    return declared.get("key").asText();
  }

  /** A value or its default, in lower case. The constructor refuses wrong ones at the start. */
  private static String found(BinaryOperator<String> get, String name) {
    return given(get, name).toLowerCase(Locale.ROOT);
  }

  private static String given(BinaryOperator<String> get, String name) {
    JsonNode declared = DECLARED.get(name);
    return get.apply(key(declared), declared.get("default").asText()).trim();
  }

  private static boolean flag(BinaryOperator<String> get, String name) {
    return found(get, name).equals("true");
  }

  private static long bytes(BinaryOperator<String> get, String name) {
    return JavaUtils.byteStringAsBytes(found(get, name));
  }

  public static String keys() {
    return DECLARED.values().stream().map(HoldfastConf::key).collect(joining(", "));
  }

  /** The keys that are no settings of Holdfast. */
  public static List<String> unknown(Collection<String> keys) {
    Set<String> known = DECLARED.values().stream().map(HoldfastConf::key).collect(toSet());
    known.add(DEFAULT_KEY);
    return keys.stream().filter(key -> !known.contains(key)).sorted().toList();
  }
}
