package io.holdfast.spark.driver;

import com.codahale.metrics.DefaultSettableGauge;
import com.codahale.metrics.MetricRegistry;
import com.codahale.metrics.SettableGauge;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.Map;

/**
 * Figures of regional pipelines since their start, in Spark's metrics system. Sinks report the last
 * figures after a pipeline's end: its gauges remain until it begins again, or a hundred others do.
 */
public final class RegionalMetrics {
  private static final int MAX_PIPELINES = 100;

  private final MetricRegistry registry;

  /** By pipeline, the last one that showed figures at the end; then by name. */
  private final LinkedHashMap<String, Map<String, SettableGauge<Number>>> shown =
      new LinkedHashMap<>(16, 0.75f, true);

  RegionalMetrics(MetricRegistry registry) {
    this.registry = registry;
  }

  synchronized void begin(String pipeline) {
    remove(shown.remove(pipeline));
    while (shown.size() >= MAX_PIPELINES) {
      remove(shown.remove(shown.keySet().iterator().next()));
    }
    shown.put(pipeline, new HashMap<>());
  }

  /** Adds or changes figures: for each a line with its name, a space, its value. */
  public synchronized void show(String pipeline, String lines) {
    Map<String, SettableGauge<Number>> figures =
        shown.computeIfAbsent(pipeline, name -> new HashMap<>());
    for (String line : lines.split("\n")) {
      int space = line.lastIndexOf(' ');
      Number value = number(line.substring(space + 1));
      figures
          .computeIfAbsent(line.substring(0, space), name -> registered(name, value))
          .setValue(value);
    }
  }

  private SettableGauge<Number> registered(String name, Number value) {
    // Never null: a gauge without a number fails a scrape of Prometheus.
    SettableGauge<Number> figure = new DefaultSettableGauge<>(value);
    // Two pipelines may get one name, as metrics lack some characters. The later pipeline counts.
    registry.remove(name);
    // Spark copied the registry when the application began, and learns of later gauges by events.
    registry.register(name, figure);
    return figure;
  }

  private void remove(Map<String, SettableGauge<Number>> figures) {
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
