package io.holdfast.spark.ui;

import java.util.List;
import java.util.Locale;
import org.apache.spark.ui.UIUtils;
import scala.collection.immutable.Seq;
import scala.xml.Node;
import scala.xml.Unparsed;

/** Pieces of pages as text. What others named or wrote goes through {@link #text}. */
final class Html {
  private static final String[] BYTE_UNITS = {"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};

  private Html() {}

  /** Markup as Spark's pages take it. */
  static Seq<Node> nodes(String markup) {
    return new Unparsed(markup);
  }

  /** A text as markup: signs of markup as what they are, and what is not seen as its code. */
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
    return String.format(Locale.ROOT, "%,d", number);
  }

  static String bytes(long bytes) {
    double value = bytes;
    int unit = 0;
    while (value >= 1024 && unit < BYTE_UNITS.length - 1) {
      value /= 1024;
      unit++;
    }
    String form = unit == 0 || value >= 100 ? "%.0f %s" : "%.1f %s";
    return String.format(Locale.ROOT, form, value, BYTE_UNITS[unit]);
  }

  static String ms(long ms) {
    return number(ms) + " ms";
  }

  static String percent(double share) {
    return String.format(Locale.ROOT, "%.0f %%", 100 * share);
  }

  /** A time as the other pages of Spark's UI show it. */
  static String time(long ms) {
    return UIUtils.formatDate(ms);
  }

  /** A column of a table. */
  record Column(String head, boolean isWord, String explanation) {
    static Column word(String head, String explanation) {
      return new Column(head, true, explanation);
    }

    static Column figure(String head, String explanation) {
      return new Column(head, false, explanation);
    }
  }

  /**
   * A table.
   *
   * @param rows their cells as markup, as many as there are columns
   */
  static String table(List<Column> columns, List<List<String>> rows) {
    StringBuilder out = new StringBuilder();
    out.append("<div class=\"hf-wide\"><table class=\"table table-sm table-striped hf-table\">");
    out.append("<thead><tr>");
    for (Column column : columns) {
      String said = column.explanation();
      String title = said.isEmpty() ? "" : " title=\"" + text(said) + "\"";
      out.append(String.format("<th%s%s>%s</th>", side(column), title, text(column.head())));
    }
    out.append("</tr></thead><tbody>");
    for (List<String> row : rows) {
      out.append("<tr>");
      for (int number = 0; number < row.size(); number++) {
        out.append("<td").append(side(columns.get(number))).append('>');
        out.append(row.get(number)).append("</td>");
      }
      out.append("</tr>");
    }
    return out.append("</tbody></table></div>").toString();
  }

  private static String side(Column column) {
    return column.isWord() ? " class=\"hf-word\"" : "";
  }
}
