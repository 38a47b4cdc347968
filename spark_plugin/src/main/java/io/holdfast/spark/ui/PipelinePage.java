package io.holdfast.spark.ui;

import io.holdfast.spark.ui.Chart.Bar;
import io.holdfast.spark.ui.Chart.Part;
import io.holdfast.spark.ui.Html.Column;
import io.holdfast.spark.ui.UiRows.Attempt;
import io.holdfast.spark.ui.UiRows.Start;
import java.util.ArrayList;
import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;

/** A regional pipeline: its checkpoints, and the regions that failed. */
final class PipelinePage {
  /** What becomes of attempts, and how that looks. */
  static final List<String> OUTCOMES = List.of("global", "regional", "aborted");

  /** The most regions in the table of those that failed. */
  private static final int MAX_REGIONS = 100;

  private static final Map<String, String> LOOKS =
      Map.of("global", "hf-blue", "regional", "hf-orange", "aborted", "hf-red");

  private static final List<Column> OF_ATTEMPTS =
      List.of(
          Column.figure("id", ""),
          Column.figure("batch", ""),
          Column.word("kind", ""),
          Column.word("outcome", ""),
          Column.word("started", ""),
          Column.figure("took", ""),
          Column.figure("in-flight rows", "Rows that the checkpoint stores for later"),
          Column.word("failed regions", "Each with the checkpoint that its state is of"));

  private static final List<Column> OF_REGIONS =
      List.of(
          Column.word("region", ""),
          Column.figure("failed attempts", "Of the attempts that are kept here"),
          Column.figure("last in", "The newest attempt in which it failed"),
          Column.word("cause", "Of that failure"));

  private PipelinePage() {}

  static long count(List<Attempt> attempts, String outcome) {
    return attempts.stream().filter(one -> one.outcome().equals(outcome)).count();
  }

  /** Of the newest checkpoint: an attempt that was aborted leaves it as it is. */
  static long inFlightRows(List<Attempt> attempts) {
    for (int at = attempts.size() - 1; at >= 0; at--) {
      if (!attempts.get(at).outcome().equals("aborted")) {
        return attempts.get(at).inFlightRows();
      }
    }
    return 0;
  }

  static String of(RowStore rows, Start start) throws Exception {
    List<Attempt> attempts = rows.of(Attempt.class, start.run());
    StringBuilder out = new StringBuilder(Facts.failure(start));
    Facts facts = Facts.of(start);
    for (String outcome : OUTCOMES) {
      facts.add(outcome, Html.number(count(attempts, outcome)), "");
    }
    facts.add("in-flight rows", Html.number(inFlightRows(attempts)), "");
    out.append(facts.markup());
    out.append("<p class=\"hf-quiet\">Segments in ").append(Html.text(start.place()));
    out.append("</p>");
    if (attempts.isEmpty()) {
      return out.append("<p>No attempt at a checkpoint has ended yet.</p>").toString();
    }
    out.append("<h4>Checkpoints</h4>");
    out.append(
        Chart.legend(
            List.of(
                new Part("hf-blue", "global: every region contributed"),
                new Part("hf-orange", "regional: some regions fell back"),
                new Part("hf-red", "aborted: nothing was published"))));
    out.append("<div class=\"hf-charts\">").append(charts(attempts)).append("</div>");
    List<List<String>> regions = regions(attempts);
    if (!regions.isEmpty()) {
      out.append("<h4>Regions that failed</h4>").append(Html.table(OF_REGIONS, regions));
    }
    out.append("<h4>Attempts</h4>");
    out.append("<p class=\"hf-quiet\">The newest ").append(Html.number(attempts.size()));
    out.append(", the newest first. <code>holdfast history</code> has those before them.</p>");
    return out.append(Html.table(OF_ATTEMPTS, lines(attempts))).toString();
  }

  private static String charts(List<Attempt> attempts) {
    List<Bar> times = new ArrayList<>();
    List<Bar> inFlight = new ArrayList<>();
    List<Bar> failures = new ArrayList<>();
    for (Attempt one : attempts) {
      String look = LOOKS.getOrDefault(one.outcome(), "hf-blue");
      String said = "attempt " + one.id() + ", batch " + one.batch() + ": " + one.outcome() + ", ";
      times.add(new Bar(one.id(), new long[] {one.ms()}, said + Html.ms(one.ms()), look));
      String rows = said + Html.number(one.inFlightRows()) + " rows in flight";
      inFlight.add(new Bar(one.id(), new long[] {one.inFlightRows()}, rows, look));
      String failed = said + Html.number(one.failures()) + " regions failed";
      failures.add(new Bar(one.id(), new long[] {one.failures()}, failed, look));
    }
    List<Part> look = List.of(new Part("hf-blue", ""));
    return Chart.bars("Time", "attempts", look, times, Html::ms)
        + Chart.bars("Rows in flight", "attempts", look, inFlight, Html::number)
        + Chart.bars("Regions that failed", "attempts", look, failures, Html::number);
  }

  private static List<List<String>> lines(List<Attempt> attempts) {
    List<List<String>> lines = new ArrayList<>();
    for (Attempt one : attempts) {
      StringBuilder failed = new StringBuilder("<div class=\"hf-long\">");
      if (!one.cause().isEmpty()) {
        failed.append("<div>").append(Html.text(one.cause())).append("</div>");
      }
      for (UiEvents.FailedRegion region : one.failed()) {
        String at = region.origin() == null ? "" : " at " + region.origin();
        failed.append("<div>").append(Html.text(region.region() + at + ": " + region.cause()));
        failed.append("</div>");
      }
      if (one.unnamedFailed() > 0) {
        failed.append("<div>and ").append(Html.number(one.unnamedFailed()));
        failed.append(" others</div>");
      }
      lines.add(
          List.of(
              Html.number(one.id()),
              Html.number(one.batch()),
              Html.text(one.kind()),
              Html.text(one.outcome()),
              Html.time(one.startedMs()),
              Html.ms(one.ms()),
              Html.number(one.inFlightRows()),
              failed.append("</div>").toString()));
    }
    Collections.reverse(lines);
    return lines;
  }

  /** The regions that failed, those that failed last first. */
  private static List<List<String>> regions(List<Attempt> attempts) {
    Map<String, Integer> counts = new LinkedHashMap<>();
    Map<String, Attempt> last = new LinkedHashMap<>();
    Map<String, String> causes = new LinkedHashMap<>();
    for (Attempt one : attempts) {
      for (UiEvents.FailedRegion failed : one.failed()) {
        counts.merge(failed.region(), 1, Integer::sum);
        // Behind those that failed before it.
        last.remove(failed.region());
        last.put(failed.region(), one);
        causes.put(failed.region(), failed.cause());
      }
    }
    List<List<String>> lines = new ArrayList<>();
    for (Map.Entry<String, Attempt> one : last.entrySet()) {
      String region = one.getKey();
      lines.add(
          List.of(
              Html.text(region),
              Html.number(counts.get(region)),
              Html.number(one.getValue().id()),
              "<div class=\"hf-long\">" + Html.text(causes.get(region)) + "</div>"));
    }
    Collections.reverse(lines);
    return lines.subList(0, Math.min(MAX_REGIONS, lines.size()));
  }
}
