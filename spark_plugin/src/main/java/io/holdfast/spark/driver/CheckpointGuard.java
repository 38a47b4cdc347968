package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.UnsupportedStateException;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.util.UninterruptibleThread;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Refuses, before anything is written, checkpoints that Holdfast cannot continue. Without this
 * Spark would go on silently with the provider that the checkpoint remembers.
 */
public final class CheckpointGuard {
  private static final Logger LOG = LoggerFactory.getLogger(CheckpointGuard.class);

  private static final Pattern RECORDED_PROVIDER =
      Pattern.compile(
          Pattern.quote("\"" + HoldfastConf.PROVIDER_KEY + "\"") + "\\s*:\\s*\"([^\"]+)\"");

  private static final String UNREADABLE = "?";

  private CheckpointGuard() {}

  /** Whether the session selects Holdfast for the queries that it starts. */
  public static boolean wantsHoldfast(Configuration conf) {
    return HoldfastConf.PROVIDER_CLASS.equals(conf.get(HoldfastConf.PROVIDER_KEY));
  }

  /** Refuses to write with a session that selects Holdfast but not checkpoint format 2. */
  public static void refuseOldFormat(Configuration conf, Path path) {
    String format = conf.get(HoldfastConf.FORMAT_KEY, "1");
    if (wantsHoldfast(conf) && !format.equals("2")) {
      throw new UnsupportedStateException(
          path + " was not written. " + HoldfastConf.formatTooOld(format));
    }
  }

  /** Refuses to start a query with a setting that tasks would fail on; warns of unknown ones. */
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
          "Holdfast knows no setting {}: it has no effect. There are {}",
          key,
          HoldfastConf.keys());
    }
  }

  /**
   * Refuses to restart a stateful query whose offset log names another provider, or none. Readers of a
   * checkpoint (the state reader, which runs on other threads) are let through.
   *
   * @param open Spark's own way, without this check
   */
  public static void refuseForeignCheckpoint(
      Predicate<Path> exists,
      Function<Path, FSDataInputStream> open,
      Configuration conf,
      Path path) {
    Path log = path.getParent();
    boolean restart =
        wantsHoldfast(conf)
            && log != null
            && log.getName().equals("offsets")
            && Thread.currentThread() instanceof UninterruptibleThread;
    if (!restart || !exists.test(new Path(log.getParent(), "state"))) {
      return;
    }
    String provider = recordedProvider(open, path);
    if (provider.equals(HoldfastConf.PROVIDER_CLASS) || provider.equals(UNREADABLE)) {
      return;
    }
    Path checkpoint = log.getParent();
    if (provider.isEmpty()) {
      throw new UnsupportedStateException(
          "Checkpoint "
              + checkpoint
              + " does not record which state store provider made it (in "
              + path
              + "): a version of Spark did that recorded none, such as 2.1, with its own provider."
              + " Holdfast cannot continue it and nothing was changed. Either set "
              + HoldfastConf.PROVIDER_KEY
              + " to Spark's own provider for this query, or start it with a new checkpoint folder.");
    }
    throw new UnsupportedStateException(
        "Checkpoint "
            + checkpoint
            + " was made with state store provider "
            + provider
            + " (recorded in "
            + path
            + "); Holdfast cannot continue it and nothing was changed. Either set "
            + HoldfastConf.PROVIDER_KEY
            + "="
            + provider
            + " for this query, or start it with a new checkpoint folder.");
  }

  /** Empty where none is recorded, {@link #UNREADABLE} for what is no entry of the offset log. */
  private static String recordedProvider(
      Function<Path, FSDataInputStream> open, Path path) {
    try (InputStream in = open.apply(path)) {
      String text = new String(in.readAllBytes(), StandardCharsets.UTF_8);
      Matcher matcher = RECORDED_PROVIDER.matcher(text);
      if (matcher.find()) {
        return matcher.group(1);
      }
      // Version, metadata (none in the oldest), offsets. A cut file is for Spark to report.
      String[] lines = text.split("\n", -1);
      String metadata = lines.length < 3 ? UNREADABLE : lines[1].trim();
      boolean whole = metadata.isEmpty() || (metadata.startsWith("{") && metadata.endsWith("}"));
      return whole ? "" : UNREADABLE;
    } catch (IOException e) {
      throw new HoldfastException("Cannot read " + path, e);
    }
  }
}
