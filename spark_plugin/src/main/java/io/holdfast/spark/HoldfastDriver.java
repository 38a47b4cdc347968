package io.holdfast.spark;

import java.util.Collections;
import java.util.HashMap;
import java.util.Map;
import org.apache.spark.SparkContext;
import org.apache.spark.api.plugin.DriverPlugin;
import org.apache.spark.api.plugin.PluginContext;

/** Driver side of the plugin: gives every manager incarnation a term that was never used. */
final class HoldfastDriver implements DriverPlugin {
  private final Map<String, Long> lastTerm = new HashMap<>();

  @Override
  public Map<String, String> init(SparkContext sc, PluginContext context) {
    BuildInfo.requireSparkMinor(sc.version());
    HoldfastPlugin.started(this);
    return Collections.emptyMap();
  }

  @Override
  public Object receive(Object message) {
    if (message instanceof TermRequest) {
      return nextTerm(((TermRequest) message).dir);
    }
    throw new IllegalArgumentException("Unknown message " + message);
  }

  @Override
  public void shutdown() {
    HoldfastPlugin.stopped(this);
  }

  /**
   * Above every term in the folder and every term given before. The clock is in it so that a term
   * whose files were all deleted since is not given again.
   */
  private synchronized long nextTerm(String dir) {
    long newest = Math.max(Native.newestTerm(dir), lastTerm.getOrDefault(dir, 0L));
    long term = Math.max(newest + 1, System.currentTimeMillis() * 1000);
    lastTerm.put(dir, term);
    return term;
  }
}
