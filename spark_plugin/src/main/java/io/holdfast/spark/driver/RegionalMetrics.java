package io.holdfast.spark.driver;

import com.codahale.metrics.Gauge;
import com.codahale.metrics.MetricRegistry;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * What regional pipelines did since they began, in Spark's metrics system. The gauges of a pipeline
 * stay when it ends, so that sinks report its last figures, until it begins again or a hundred others
 * did.
 */
public final class RegionalMetrics {
  private static final int MAX_PIPELINES = 100;

  /** One figure. The registry's copy of the gauge is read by threads of sinks. */
  private static final class Figure implements Gauge<Number> {
    /** Never null: Prometheus gives up a scrape that has a gauge without a number. */
    volatile Number value;

    Figure(Number value) {
      this.value = value;
    }

    @Override
    public Number getValue() {
      return value;
    }
  }

  private final MetricRegistry registry;

  /** By pipeline, the one that showed figures last at the end; then by name. */
  private final LinkedHashMap<String, Map<String, Figure>> shown =
      new LinkedHashMap<>(16, 0.75f, true);

  RegionalMetrics(MetricRegistry registry) {
    this.registry = registry;
  }

  /** Removes the figures that a pipeline showed when it ran before. */
  synchronized void begin(String pipeline) {
    remove(shown.remove(pipeline));
    while (shown.size() >= MAX_PIPELINES) {
      remove(shown.remove(shown.keySet().iterator().next()));
    }
    shown.put(pipeline, new HashMap<>());
  }

  /**
   * Shows figures, beside those that were shown before.
   *
   * @param lines of each figure a line: its name, a space, its value
   */
  public synchronized void show(String pipeline, String lines) {
    Map<String, Figure> figures = shown.computeIfAbsent(pipeline, name -> new HashMap<>());
    for (String line : lines.split("\n")) {
      int space = line.lastIndexOf(' ');
      Number value = number(line.substring(space + 1));
      figures.computeIfAbsent(line.substring(0, space), name -> registered(name, value)).value =
          value;
    }
  }

  private Figure registered(String name, Number value) {
    Figure figure = new Figure(value);
    // Names of two pipelines may differ in a character that metrics do not have: the later one counts.
    registry.remove(name);
    // Spark copied the registry when the application began; it hears of what is added later.
    registry.register(name, figure);
    return figure;
  }

  private void remove(Map<String, Figure> figures) {
    if (figures != null) {
      figures.keySet().forEach(registry::remove);
    }
  }

  private static Number number(String text) {
    try {
      return Long.valueOf(text);
    } catch (NumberFormatException fraction) {
      return Double.valueOf(text);
    }
  }
}
