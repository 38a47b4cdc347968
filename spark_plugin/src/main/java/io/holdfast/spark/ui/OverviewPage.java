package io.holdfast.spark.ui;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.ui.Html.Column;
import io.holdfast.spark.ui.UiRows.Attempt;
import io.holdfast.spark.ui.UiRows.Batch;
import io.holdfast.spark.ui.UiRows.Files;
import io.holdfast.spark.ui.UiRows.Kind;
import io.holdfast.spark.ui.UiRows.Start;
import java.util.ArrayList;
import java.util.List;
import java.util.function.Function;

/** All queries and regional pipelines of the application, each in a line. */
final class OverviewPage {
  private static final List<Column> OF_QUERIES =
      List.of(
          Column.word("query", ""),
          Column.word("state", ""),
          Column.word("started", ""),
          Column.figure("batch", "The newest batch"),
          Column.figure("rows", "Rows that this batch read"),
          Column.figure("keys", "Keys in the state"),
          Column.figure("runs", "Base images and delta runs that the stores are made of"),
          Column.figure("loads", "Versions read from files, in the batches that are kept here"),
          Column.figure("cold reads", "Reads of runs for keys not in memory, in these batches"),
          Column.figure("stored", "Bytes written to files in these batches"),
          Column.figure("files", "Files left by the last clean-up"),
          Column.figure("bytes", "Bytes of these files"),
          Column.figure("live", "Share of the closed files' bytes that a retained batch needs"),
          Column.figure("pinned", "Bytes of the closed files that no retained batch needs"));

  private static final List<Column> OF_PIPELINES =
      List.of(
          Column.word("pipeline", ""),
          Column.word("state", ""),
          Column.word("started", ""),
          Column.figure("attempt", "The newest attempt at a checkpoint"),
          Column.figure("batch", "Its batch"),
          Column.word("outcome", "What became of it"),
          Column.figure("global", "Checkpoints to which every region contributed"),
          Column.figure("regional", "Checkpoints in which some regions fell back"),
          Column.figure("aborted", "Attempts that published nothing"),
          Column.figure("failed regions", "Regions that failed in the newest attempt"),
          Column.figure("in-flight rows", "Rows that the newest checkpoint stores for later"));

  private static final String NOTHING =
      "<p>No query with state in Holdfast has ended a batch in this application, and no regional"
          + " pipeline was started.</p>"
          + "<p>A query keeps its state in Holdfast if these are set when it starts, as"
          + " <code>holdfast.configure</code> does:</p>"
          + Html.table(
              List.of(Column.word("setting", ""), Column.word("value", "")),
              List.of(
                  List.of(HoldfastConf.PROVIDER_KEY, HoldfastConf.PROVIDER_CLASS),
                  List.of(HoldfastConf.FORMAT_KEY, "2"),
                  List.of(HoldfastConf.FILE_MANAGER_KEY, HoldfastConf.FILE_MANAGER_CLASS)))
          + "<p>It appears here when its first batch has ended. A query without state does not, and"
          + " neither does one whose checkpoint another provider began.</p>";

  private OverviewPage() {}

  static String of(RowStore rows, Function<Start, String> address) throws Exception {
    List<List<String>> queries = new ArrayList<>();
    List<List<String>> pipelines = new ArrayList<>();
    for (Start start : rows.starts()) {
      String link =
          "<a href=\"" + Html.text(address.apply(start)) + "\">" + Html.text(start.name()) + "</a>";
      List<String> cells = new ArrayList<>();
      cells.add(link);
      cells.add(Facts.state(start));
      cells.add(Html.time(start.startedMs()));
      if (start.kind() == Kind.QUERY) {
        addQuery(cells, rows.of(Batch.class, start.run()), rows.of(Files.class, start.run()));
        queries.add(cells);
      } else {
        addPipeline(cells, rows.of(Attempt.class, start.run()));
        pipelines.add(cells);
      }
    }
    if (queries.isEmpty() && pipelines.isEmpty()) {
      return NOTHING;
    }
    StringBuilder out = new StringBuilder();
    if (!queries.isEmpty()) {
      out.append("<h4>Queries with state in Holdfast</h4>");
      out.append(Html.table(OF_QUERIES, queries));
    }
    if (!pipelines.isEmpty()) {
      out.append("<h4>Regional pipelines</h4>");
      out.append(Html.table(OF_PIPELINES, pipelines));
    }
    return out.toString();
  }

  private static void addQuery(List<String> cells, List<Batch> batches, List<Files> files) {
    if (batches.isEmpty()) {
      pad(cells, OF_QUERIES);
      return;
    }
    Batch last = batches.get(batches.size() - 1);
    cells.add(Html.number(last.batch()));
    cells.add(Html.number(last.get(Figures.INPUT_ROWS)));
    cells.add(Html.number(last.get(Figures.KEYS)));
    cells.add(Html.number(last.get("holdfastRuns")));
    cells.add(Html.number(sum(batches, "holdfastLoads")));
    cells.add(Html.number(sum(batches, "holdfastColdReads")));
    cells.add(Html.bytes(sum(batches, "holdfastStoredBytes")));
    if (!files.isEmpty()) {
      Files counted = files.get(files.size() - 1);
      cells.add(Html.number(counted.files()));
      cells.add(Html.bytes(counted.bytes()));
      cells.add(counted.closedBytes() == 0 ? "" : Html.percent(counted.liveShare()));
      cells.add(Html.bytes(counted.pinnedBytes()));
    }
    pad(cells, OF_QUERIES);
  }

  private static void addPipeline(List<String> cells, List<Attempt> attempts) {
    if (!attempts.isEmpty()) {
      Attempt last = attempts.get(attempts.size() - 1);
      cells.add(Html.number(last.id()));
      cells.add(Html.number(last.batch()));
      cells.add(Html.text(last.outcome()));
      for (String outcome : PipelinePage.OUTCOMES) {
        cells.add(Html.number(PipelinePage.count(attempts, outcome)));
      }
      cells.add(Html.number(last.failures()));
      cells.add(Html.number(PipelinePage.inFlightRows(attempts)));
    }
    pad(cells, OF_PIPELINES);
  }

  private static void pad(List<String> cells, List<Column> columns) {
    while (cells.size() < columns.size()) {
      cells.add("");
    }
  }

  static long sum(List<Batch> batches, String figure) {
    return batches.stream().mapToLong(batch -> batch.get(figure)).sum();
  }
}
