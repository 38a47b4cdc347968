package io.holdfast.spark.ui;

import static io.holdfast.spark.ui.Html.fact;
import static io.holdfast.spark.ui.Html.format;
import static io.holdfast.spark.ui.Html.number;
import static io.holdfast.spark.ui.Html.text;

import io.holdfast.spark.ui.Chart.Bar;
import io.holdfast.spark.ui.Chart.Part;
import io.holdfast.spark.ui.Html.Column;
import io.holdfast.spark.ui.UiEvents.AttemptEnded;
import io.holdfast.spark.ui.UiRows.Start;
import java.util.ArrayList;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.function.LongFunction;
import java.util.function.ToLongFunction;

/** A regional pipeline: its checkpoints, and the regions that failed. */
final class PipelinePage {
  static final List<String> OUTCOMES = List.of("global", "regional", "aborted");
  private static final int MAX_REGIONS = 100; // in the table of failures

  /** In the order of the outcomes. */
  private static final List<Part> LEGEND =
      List.of(
          new Part("hf-blue", "global: every region contributed"),
          new Part("hf-orange", "regional: some regions fell back"),
          new Part("hf-red", "aborted: nothing was published"));

  /** All charts share one legend. */
  private static final List<Part> LOOKS =
      LEGEND.stream().map(part -> new Part(part.look(), "")).toList();

  private static final List<Column<AttemptEnded>> OF_ATTEMPTS =
      List.of(
          Column.figure("id", "", one -> number(one.id())),
          Column.figure("batch", "", one -> number(one.batch())),
          Column.word("kind", "", one -> text(one.kind())),
          Column.word("outcome", "", one -> text(one.outcome())),
          Column.word("started", "", one -> Html.time(one.startedMs())),
          Column.figure("took", "", one -> Html.ms(one.ms())),
          Column.figure(
              "in-flight rows",
              "Rows that the checkpoint stores for later",
              one -> number(one.inFlightRows())),
          Column.word(
              "failed regions",
              "Each with the checkpoint that its state is of",
              PipelinePage::failures));

  /** A region that failed, how often, and the last attempt in which it did. */
  private record Failed(String region, int count, long last, String cause) {}

  private static final List<Column<Failed>> OF_REGIONS =
      List.of(
          Column.word("region", "", one -> text(one.region())),
          Column.figure(
              "failed attempts",
              "Failures in the attempts that are kept here",
              one -> number(one.count())),
          Column.figure(
              "last in", "The newest attempt in which it failed", one -> number(one.last())),
          Column.word(
              "cause",
              "The cause of that failure",
              one -> "<div class=\"hf-long\">" + text(one.cause()) + "</div>"));

  private PipelinePage() {}

  static long count(List<AttemptEnded> attempts, String outcome) {
    return attempts.stream().filter(one -> one.outcome().equals(outcome)).count();
  }

  /** In-flight rows of the newest checkpoint. An aborted attempt does not change them. */
  static long inFlightRows(List<AttemptEnded> attempts) {
    return attempts.stream()
        .filter(one -> !one.outcome().equals("aborted"))
        .reduce((older, newer) -> newer)
        .map(AttemptEnded::inFlightRows)
        .orElse(0L);
  }

  static String of(RowStore rows, Start start) throws Exception {
    List<AttemptEnded> attempts = rows.of(AttemptEnded.class, start.run());
    StringBuilder facts = new StringBuilder();
    for (String outcome : OUTCOMES) {
      facts.append(fact(outcome, number(count(attempts, outcome)), ""));
    }
    facts.append(fact("in-flight rows", number(inFlightRows(attempts)), ""));
    String head =
        start.head(facts.toString())
            + format("<p class=\"hf-quiet\">Segments in %s</p>", text(start.place()));
    if (attempts.isEmpty()) {
      return head + "<p>No attempt at a checkpoint has ended yet.</p>";
    }
    LongFunction<String> count = Html::number;
    List<Failed> regions = regions(attempts);
    return format(
        """
        %s<h4>Checkpoints</h4>%s<div class="hf-charts">%s%s%s</div>%s<h4>Attempts</h4>
        <p class="hf-quiet">The newest %s, the newest first. <code>holdfast history</code> has \
        those before them.</p>%s
        """,
        head,
        Chart.legend(LEGEND),
        chart("Time", "", attempts, AttemptEnded::ms, Html::ms),
        chart("Rows in flight", " rows in flight", attempts, AttemptEnded::inFlightRows, count),
        chart("Regions that failed", " regions failed", attempts, AttemptEnded::failures, count),
        regions.isEmpty() ? "" : "<h4>Regions that failed</h4>" + Html.table(OF_REGIONS, regions),
        number(attempts.size()),
        Html.table(OF_ATTEMPTS, UiRows.reversed(attempts)));
  }

  private static String chart(
      String title,
      String what,
      List<AttemptEnded> attempts,
      ToLongFunction<AttemptEnded> figure,
      LongFunction<String> unit) {
    return Chart.bars(
        title,
        "attempts",
        LOOKS,
        attempts,
        one -> {
          // The figure has the place of its outcome, and with it the colour.
          long[] figures = new long[LOOKS.size()];
          long found = figure.applyAsLong(one);
          figures[Math.max(0, OUTCOMES.indexOf(one.outcome()))] = found;
          String said =
              format(
                  "attempt %d, batch %d: %s, %s%s",
                  one.id(), one.batch(), one.outcome(), unit.apply(found), what);
          return new Bar(one.id(), said, figures);
        },
        unit);
  }

  private static String failures(AttemptEnded one) {
    List<String> lines = new ArrayList<>();
    if (!one.cause().isEmpty()) {
      lines.add(one.cause());
    }
    for (UiEvents.FailedRegion failed : one.failed()) {
      String at = failed.origin() == null ? "" : " at " + failed.origin();
      lines.add(failed.region() + at + ": " + failed.cause());
    }
    if (one.unnamedFailed() > 0) {
      lines.add("and " + number(one.unnamedFailed()) + " others");
    }
    StringBuilder out = new StringBuilder("<div class=\"hf-long\">");
    lines.forEach(line -> out.append("<div>").append(text(line)).append("</div>"));
    return out.append("</div>").toString();
  }

  /** The region that failed last is the first. */
  private static List<Failed> regions(List<AttemptEnded> attempts) {
    Map<String, Failed> found = new LinkedHashMap<>();
    for (AttemptEnded one : attempts) {
      for (UiEvents.FailedRegion failed : one.failed()) {
        // Removed and put in again, the region is the last one.
        Failed before = found.remove(failed.region());
        int count = before == null ? 1 : before.count() + 1;
        found.put(failed.region(), new Failed(failed.region(), count, one.id(), failed.cause()));
      }
    }
    List<Failed> lines = UiRows.reversed(List.copyOf(found.values()));
    return lines.subList(0, Math.min(MAX_REGIONS, lines.size()));
  }
}
