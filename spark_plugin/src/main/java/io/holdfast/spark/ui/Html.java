package io.holdfast.spark.ui;

import java.util.List;
import java.util.Locale;
import java.util.function.Function;
import java.util.function.Predicate;
import java.util.stream.Collectors;
import org.apache.spark.ui.UIUtils;

/** Pieces of pages as markup. Names and texts of others go through {@link #text}. */
final class Html {
  private static final String[] BYTE_UNITS = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

  private Html() {}

  /** {@link String#format} with the same figures everywhere, whatever the locale. */
  static String format(String form, Object... arguments) {
    return String.format(Locale.ROOT, form, arguments);
  }

  /** Escapes a text for markup. An invisible character appears as its code. */
  static String text(String text) {
    if (text == null) {
      return "";
    }
    StringBuilder out = new StringBuilder(text.length());
    text.codePoints().forEach(sign -> append(out, sign));
    return out.toString();
  }

  private static void append(StringBuilder out, int sign) {
    switch (sign) {
      case '&' -> out.append("&amp;");
      case '<' -> out.append("&lt;");
      case '>' -> out.append("&gt;");
      case '"' -> out.append("&quot;");
      case '\'' -> out.append("&#39;");
      case '\n', '\t' -> out.append(' ');
      default -> {
        switch (Character.getType(sign)) {
          case Character.CONTROL,
              Character.FORMAT,
              Character.SURROGATE,
              Character.LINE_SEPARATOR,
              Character.PARAGRAPH_SEPARATOR -> out.append(String.format("\\u%04x", sign));
          default -> out.appendCodePoint(sign);
        }
      }
    }
  }

  static String number(long number) {
    return format("%,d", number);
  }

  static String bytes(long bytes) {
    double value = bytes;
    int unit = 0;
    while (value >= 1024 && unit < BYTE_UNITS.length - 1) {
      value /= 1024;
      unit++;
    }
    return format(unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s", value, BYTE_UNITS[unit]);
  }

  static String ms(long ms) {
    return number(ms) + " ms";
  }

  static String percent(double share) {
    return format("%.0f %%", 100 * share);
  }

  /** A time as the other pages of Spark's UI show it. */
  static String time(long ms) {
    return UIUtils.formatDate(ms);
  }

  /** A column of a table; its cells are markup. */
  record Column<R>(String head, boolean isWord, String explanation, Function<R, String> cell) {
    static <R> Column<R> word(String head, String explanation, Function<R, String> cell) {
      return new Column<>(head, true, explanation, cell);
    }

    static <R> Column<R> figure(String head, String explanation, Function<R, String> cell) {
      return new Column<>(head, false, explanation, cell);
    }

    /** The same column, with empty cells for rows that do not meet a condition. */
    Column<R> where(Predicate<R> condition) {
      return new Column<>(
          head, isWord, explanation, row -> condition.test(row) ? cell.apply(row) : "");
    }

    private String side() {
      return isWord ? " class=\"hf-word\"" : "";
    }
  }

  static <R> String table(List<Column<R>> columns, List<R> rows) {
    StringBuilder out = new StringBuilder();
    out.append("<div class=\"hf-wide\"><table class=\"table table-sm table-striped hf-table\">");
    out.append("<thead><tr>");
    for (Column<R> column : columns) {
      String said = column.explanation();
      String title = said.isEmpty() ? "" : " title=\"" + text(said) + "\"";
      out.append(format("<th%s%s>%s</th>", column.side(), title, text(column.head())));
    }
    out.append("</tr></thead><tbody>");
    for (R row : rows) {
      out.append(
          columns.stream()
              .map(column -> "<td" + column.side() + ">" + column.cell().apply(row) + "</td>")
              .collect(Collectors.joining("", "<tr>", "</tr>")));
    }
    return out.append("</tbody></table></div>").toString();
  }

  /** One fact of the head of a page. The line below it may be empty. */
  static String fact(String name, String value, String below) {
    return format(
        "<div><dt>%s</dt><dd>%s%s</dd></div>",
        name, text(value), below.isEmpty() ? "" : "<small>" + text(below) + "</small>");
  }
}
