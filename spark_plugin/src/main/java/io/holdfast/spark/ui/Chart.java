package io.holdfast.spark.ui;

import java.util.List;
import java.util.Locale;
import java.util.function.LongFunction;

/** A small chart over batches or attempts, as a picture without a script. */
final class Chart {
  private static final int WIDTH = 400;
  private static final int PLOT = 84;
  private static final int TOP = 8;
  private static final int BOTTOM = 18;
  private static final int WIDEST_BAR = 24;

  /**
   * What is drawn at one place.
   *
   * @param number of the batch or the attempt
   * @param parts figures on top of each other, the first at the foot
   * @param said all of it in words
   * @param look class of the first part instead of that of the chart; empty for that
   */
  record Bar(long number, long[] parts, String said, String look) {
    Bar(long number, long figure, String said) {
      this(number, new long[] {figure}, said, "");
    }

    long sum() {
      long sum = 0;
      for (long part : parts) {
        sum += part;
      }
      return sum;
    }
  }

  /** How a part of bars looks, and what it is. */
  record Part(String look, String name) {}

  private Chart() {}

  /**
   * A chart of bars.
   *
   * @param title what is drawn
   * @param of what bars are numbered by, in the plural: batches
   * @param parts of each bar; of more than one there is a legend
   * @param bars by age, at least one
   * @param unit how a figure is written
   */
  static String bars(
      String title, String of, List<Part> parts, List<Bar> bars, LongFunction<String> unit) {
    long most = bars.stream().mapToLong(Bar::sum).max().orElse(0);
    StringBuilder out = new StringBuilder("<figure class=\"hf-chart\"><figcaption>");
    out.append(Html.text(title)).append("</figcaption>");
    Bar first = bars.get(0);
    Bar last = bars.get(bars.size() - 1);
    String label =
        String.format(
            Locale.ROOT,
            "%s, %s %s to %s: at most %s, %s in the last",
            title,
            of,
            Html.number(first.number()),
            Html.number(last.number()),
            unit.apply(most),
            unit.apply(last.sum()));
    out.append(
        String.format(
            Locale.ROOT,
            "<svg viewBox=\"0 0 %d %d\" role=\"img\" aria-label=\"%s\">",
            WIDTH, TOP + PLOT + BOTTOM, Html.text(label)));
    double wide = Math.min(WIDEST_BAR, (double) WIDTH / bars.size());
    for (int at = 0; at < bars.size(); at++) {
      draw(out, bars.get(at), parts, at * wide, wide, most);
    }
    int foot = TOP + PLOT;
    out.append(
        String.format(
            Locale.ROOT, "<path class=\"hf-axis\" d=\"M0 %d.5H%d\"/>", foot, WIDTH));
    out.append(words(0, foot + 13, "", Html.number(first.number())));
    if (bars.size() > 1) {
      double end = Math.max(wide * bars.size(), 60);
      out.append(words(end, foot + 13, "hf-end", Html.number(last.number())));
    }
    out.append("</svg><p class=\"hf-quiet\">at most ").append(Html.text(unit.apply(most)));
    out.append(", last ").append(Html.text(unit.apply(last.sum()))).append("</p>");
    return out.append(parts.size() > 1 ? legend(parts) : "").append("</figure>").toString();
  }

  private static void draw(
      StringBuilder out, Bar bar, List<Part> parts, double x, double wide, long most) {
    out.append("<g><title>").append(Html.text(bar.said())).append("</title>");
    // All of the column answers to the pointer, however low its bar is.
    out.append(rect("hf-column", x, TOP, wide, PLOT));
    double foot = TOP + PLOT;
    double drawn = wide > 3 ? wide - 1 : wide;
    for (int part = 0; part < bar.parts().length; part++) {
      double high = most == 0 ? 0 : (double) PLOT * bar.parts()[part] / most;
      if (high > 0) {
        // What there is, is seen.
        high = Math.max(high, 1);
        foot -= high;
        String look = part == 0 && !bar.look().isEmpty() ? bar.look() : parts.get(part).look();
        out.append(rect(look, x, foot, drawn, high));
      }
    }
    out.append("</g>");
  }

  private static String rect(String look, double x, double y, double wide, double high) {
    return String.format(
        Locale.ROOT,
        "<rect class=\"%s\" x=\"%.2f\" y=\"%.2f\" width=\"%.2f\" height=\"%.2f\"/>",
        look,
        x,
        y,
        wide,
        high);
  }

  private static String words(double x, double y, String look, String words) {
    return String.format(
        Locale.ROOT,
        "<text class=\"%s\" x=\"%.1f\" y=\"%.1f\">%s</text>",
        look,
        x,
        y,
        Html.text(words));
  }

  /** What colours mean. */
  static String legend(List<Part> parts) {
    StringBuilder out = new StringBuilder("<ul class=\"hf-legend\">");
    for (Part part : parts) {
      out.append(
          String.format(
              "<li><svg width=\"10\" height=\"10\"><rect class=\"%s\" width=\"10\""
                  + " height=\"10\"/></svg> %s</li>",
              part.look(), Html.text(part.name())));
    }
    return out.append("</ul>").toString();
  }
}
