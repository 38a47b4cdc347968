package io.holdfast.spark.ui;

import static io.holdfast.spark.ui.Html.Column.figure;
import static io.holdfast.spark.ui.Html.number;
import static io.holdfast.spark.ui.Html.text;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.ui.Html.Column;
import io.holdfast.spark.ui.UiEvents.AttemptEnded;
import io.holdfast.spark.ui.UiEvents.FilesCounted;
import io.holdfast.spark.ui.UiRows.Batch;
import io.holdfast.spark.ui.UiRows.Kind;
import io.holdfast.spark.ui.UiRows.Start;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.function.Function;

/** All queries and regional pipelines of the application, each in a line. */
final class OverviewPage {
  /** A start with its link and its rows: batches of a query, or attempts of a pipeline. */
  private record Line<R>(Start start, String link, List<R> rows, List<FilesCounted> files) {
    R last() {
      return rows.get(rows.size() - 1);
    }
  }

  private static final List<Column<Line<Batch>>> OF_QUERIES =
      columns(
          "query",
          figure("batch", "The newest batch", one -> number(one.last().batch())),
          newest("rows", "Rows that this batch read", Figures.INPUT_ROWS),
          figure(
              "bad rows",
              "Rows set aside in the batches that are kept here",
              one -> number(sum(one, Figures.BAD_ROWS))),
          newest("keys", "Keys in the state", Figures.KEYS),
          newest("runs", "Base images and delta runs that the stores are made of", "holdfastRuns"),
          figure(
              "loads",
              "Versions read from files, in the batches that are kept here",
              one -> number(sum(one, "holdfastLoads"))),
          figure(
              "cold reads",
              "Reads of runs for keys not in memory, in these batches",
              one -> number(sum(one, "holdfastColdReads"))),
          figure(
              "stored",
              "Bytes written to files in these batches",
              one -> Html.bytes(sum(one, "holdfastStoredBytes"))),
          ofFiles("files", "Files left by the last clean-up", one -> number(one.files())),
          ofFiles("bytes", "Bytes of these files", one -> Html.bytes(one.bytes())),
          ofFiles("live", FilesCounted.LIVE, one -> one.live()),
          ofFiles("pinned", FilesCounted.PINNED, one -> Html.bytes(one.pinnedBytes())));

  private static final List<Column<Line<AttemptEnded>>> OF_PIPELINES =
      columns(
          "pipeline",
          figure("attempt", "The newest attempt at a checkpoint", one -> number(one.last().id())),
          figure("batch", "Its batch", one -> number(one.last().batch())),
          Column.word("outcome", "How the attempt ended", one -> text(one.last().outcome())),
          counted("global", "Checkpoints to which every region contributed"),
          counted("regional", "Checkpoints in which some regions fell back"),
          counted("aborted", "Attempts that published nothing"),
          figure(
              "failed regions",
              "Regions that failed in the newest attempt",
              one -> number(one.last().failures())),
          figure(
              "in-flight rows",
              "Rows that the newest checkpoint stores for later",
              one -> number(PipelinePage.inFlightRows(one.rows()))));

  private static final String NOTHING =
      "<p>No query with state in Holdfast has ended a batch in this application, none sets bad rows"
          + " aside, and no regional pipeline was started.</p>"
          + "<p>A query keeps its state in Holdfast if these are set when it starts, as"
          + " <code>holdfast.configure</code> does:</p>"
          + Html.table(
              List.of(
                  Column.word("setting", "", Map.Entry<String, String>::getKey),
                  Column.word("value", "", Map.Entry::getValue)),
              List.of(
                  Map.entry(HoldfastConf.DEFAULT_KEY, "true"), // from-4.3
                  // until-4.2: Map.entry(HoldfastConf.PROVIDER_KEY, HoldfastConf.PROVIDER_CLASS),
                  Map.entry(HoldfastConf.FORMAT_KEY, "2"),
                  Map.entry(HoldfastConf.FILE_MANAGER_KEY, HoldfastConf.FILE_MANAGER_CLASS)))
          + "<p>It appears here when its first batch has ended. A query that has no state and sets no"
          + " bad rows aside does not, and neither does one whose checkpoint another provider"
          + " began.</p>";

  private OverviewPage() {}

  /** The columns of every start, and columns of its rows, which remain empty without rows. */
  @SafeVarargs
  private static <R> List<Column<Line<R>>> columns(String head, Column<Line<R>>... ofRows) {
    List<Column<Line<R>>> all = new ArrayList<>();
    all.add(Column.word(head, "", Line::link));
    all.add(Column.word("state", "", one -> one.start().state()));
    all.add(Column.word("started", "", one -> Html.time(one.start().startedMs())));
    for (Column<Line<R>> one : ofRows) {
      all.add(one.where(line -> !line.rows().isEmpty()));
    }
    return all;
  }

  private static Column<Line<Batch>> newest(String head, String explanation, String figure) {
    return figure(head, explanation, one -> number(one.last().get(figure)));
  }

  private static Column<Line<Batch>> ofFiles(
      String head, String explanation, Function<FilesCounted, String> cell) {
    Function<Line<Batch>, String> last = one -> cell.apply(one.files().get(one.files().size() - 1));
    return figure(head, explanation, last).where(one -> !one.files().isEmpty());
  }

  private static Column<Line<AttemptEnded>> counted(String outcome, String explanation) {
    return figure(outcome, explanation, one -> number(PipelinePage.count(one.rows(), outcome)));
  }

  private static long sum(Line<Batch> query, String figure) {
    return query.rows().stream().mapToLong(batch -> batch.get(figure)).sum();
  }

  static String of(RowStore rows, Function<Start, String> address) throws Exception {
    List<Line<Batch>> queries = new ArrayList<>();
    List<Line<AttemptEnded>> pipelines = new ArrayList<>();
    for (Start start : rows.starts()) {
      String run = start.run();
      String link = "<a href=\"" + text(address.apply(start)) + "\">" + text(start.name()) + "</a>";
      if (start.kind() == Kind.QUERY) {
        queries.add(new Line<>(start, link, rows.of(Batch.class, run), rows.cleanUps(run)));
      } else {
        pipelines.add(new Line<>(start, link, rows.of(AttemptEnded.class, run), List.of()));
      }
    }
    if (queries.isEmpty() && pipelines.isEmpty()) {
      return NOTHING;
    }
    return (queries.isEmpty()
            ? ""
            : "<h4>Queries</h4>" + Html.table(OF_QUERIES, queries))
        + (pipelines.isEmpty()
            ? ""
            : "<h4>Regional pipelines</h4>" + Html.table(OF_PIPELINES, pipelines));
  }
}
