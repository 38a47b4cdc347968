package io.holdfast.spark.ui;

import static io.holdfast.spark.ui.Html.format;
import static io.holdfast.spark.ui.Html.number;
import static io.holdfast.spark.ui.Html.text;

import java.util.Arrays;
import java.util.List;
import java.util.function.Function;
import java.util.function.LongFunction;

/** A small chart over batches or attempts, as a picture without a script. */
final class Chart {
  private static final int WIDTH = 400;
  private static final int PLOT = 84;
  private static final int TOP = 8;
  private static final int FOOT = TOP + PLOT;
  private static final int BOTTOM = 18;
  private static final int WIDEST_BAR = 24;

  /** The parts of a chart with one figure, which needs no legend. */
  static final List<Part> ONE = List.of(new Part("hf-blue", ""));

  /** A column of a batch or an attempt: its figures in words, and from the foot upwards. */
  record Bar(long number, String said, long... figures) {
    long sum() {
      return Arrays.stream(figures).sum();
    }
  }

  /** The colour of a figure, and its name in the legend; empty without a legend. */
  record Part(String look, String name) {}

  private Chart() {}

  /** Returns a chart of rows by age, at least one, whose plural name is {@code numbered}. */
  static <R> String bars(
      String title,
      String numbered,
      List<Part> parts,
      List<R> rows,
      Function<R, Bar> barOf,
      LongFunction<String> unit) {
    List<Bar> bars = rows.stream().map(barOf).toList();
    long most = bars.stream().mapToLong(Bar::sum).max().orElse(0);
    Bar last = bars.get(bars.size() - 1);
    String from = number(bars.get(0).number());
    String to = number(last.number());
    String atMost = "at most " + text(unit.apply(most));
    String inLast = text(unit.apply(last.sum()));
    double wide = Math.min(WIDEST_BAR, (double) WIDTH / bars.size());
    StringBuilder drawn = new StringBuilder();
    for (int at = 0; at < bars.size(); at++) {
      drawn.append(column(bars.get(at), parts, at * wide, wide, most));
    }
    drawn.append(format("<path class=\"hf-axis\" d=\"M0 %d.5H%d\"/>", FOOT, WIDTH));
    drawn.append(format("<text x=\"0\" y=\"%d\">%s</text>", FOOT + 13, from));
    if (bars.size() > 1) {
      double end = Math.max(wide * bars.size(), 60);
      drawn.append(
          format("<text class=\"hf-end\" x=\"%.1f\" y=\"%d\">%s</text>", end, FOOT + 13, to));
    }
    return format(
        """
        <figure class="hf-chart"><figcaption>%s</figcaption>
        <svg viewBox="0 0 %d %d" role="img" aria-label="%s, %s %s to %s: %s, %s in the last">
        %s</svg><p class="hf-quiet">%s, last %s</p>%s</figure>
        """,
        title, WIDTH, FOOT + BOTTOM, title, numbered, from, to, atMost, inLast, drawn, atMost,
        inLast, legend(parts));
  }

  private static String column(Bar bar, List<Part> parts, double x, double wide, long most) {
    // The whole column answers to the pointer, even if its bar is low.
    StringBuilder out = new StringBuilder("<g><title>" + text(bar.said()) + "</title>");
    out.append(rect("hf-column", x, TOP, wide, PLOT));
    double foot = FOOT;
    for (int part = 0; part < bar.figures().length; part++) {
      double high = most == 0 ? 0 : (double) PLOT * bar.figures()[part] / most;
      if (high > 0) {
        // A small figure remains visible.
        high = Math.max(high, 1);
        foot -= high;
        out.append(rect(parts.get(part).look(), x, foot, wide > 3 ? wide - 1 : wide, high));
      }
    }
    return out.append("</g>").toString();
  }

  private static String rect(String look, double x, double y, double wide, double high) {
    return format(
        "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>",
        look, x, y, wide, high);
  }

  static String legend(List<Part> parts) {
    StringBuilder out = new StringBuilder();
    for (Part part : parts) {
      if (!part.name().isEmpty()) {
        out.append(
            format(
                """
                <li><svg width="10" height="10"><rect class="%s" width="10" height="10"/></svg>
                %s</li>
                """,
                part.look(), part.name()));
      }
    }
    return out.isEmpty() ? "" : "<ul class=\"hf-legend\">" + out + "</ul>";
  }
}
