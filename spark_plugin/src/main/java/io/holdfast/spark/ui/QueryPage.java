package io.holdfast.spark.ui;

import io.holdfast.spark.ui.Chart.Bar;
import io.holdfast.spark.ui.Chart.Part;
import io.holdfast.spark.ui.Html.Column;
import io.holdfast.spark.ui.UiRows.Batch;
import io.holdfast.spark.ui.UiRows.Files;
import io.holdfast.spark.ui.UiRows.Start;
import java.util.ArrayList;
import java.util.Collections;
import java.util.List;
import java.util.function.LongFunction;
import java.util.function.ToLongFunction;

/** A query with state in Holdfast: its files and what its stores did, batch by batch. */
final class QueryPage {
  private static final List<Column> OF_BATCHES =
      List.of(
          Column.figure("batch", ""),
          Column.word("ended", ""),
          Column.figure("took", ""),
          Column.figure("rows", "Rows that the batch read"),
          Column.figure("keys", "Keys in the state after it"),
          Column.figure("memory", "Native memory that the state takes"),
          Column.figure("stored", "Bytes written to files"),
          Column.figure("files created", ""),
          Column.figure("runs", "Base images and delta runs that the stores are made of"),
          Column.figure("runs written", "Base images and delta runs written"),
          Column.figure("changelogs", "Commits that wrote a changelog"),
          Column.figure("unmerged", "Changelogs that are in no run yet"),
          Column.figure("loads", "Versions read from files"),
          Column.figure("cold reads", "Reads of runs for keys not in memory"),
          Column.figure("pinned", "Bytes that no retained batch needs, when the batch told of it"),
          Column.figure("rewinds", "Versions served by undoing a commit"),
          Column.figure("files sealed", ""));

  private static final List<Column> OF_FILES =
      List.of(
          Column.figure("after batch", ""),
          Column.word("at", ""),
          Column.figure("files", "Files that are left, those that are written to included"),
          Column.figure("bytes", "Of these"),
          Column.figure("closed", "Bytes of the files that are closed"),
          Column.figure("pinned", "Bytes of the closed files that no retained batch needs"),
          Column.figure("live", "Share of the closed files' bytes that a retained batch needs"));

  private static final List<Part> ONE = List.of(new Part("hf-blue", ""));

  private QueryPage() {}

  static String of(RowStore rows, Start start) throws Exception {
    List<Batch> batches = rows.of(Batch.class, start.run());
    List<Files> files = rows.of(Files.class, start.run());
    StringBuilder out = new StringBuilder(Facts.failure(start));
    out.append(facts(start, batches, files));
    out.append("<p class=\"hf-quiet\">Id ").append(Html.text(start.place())).append(", run ");
    out.append(Html.text(start.run())).append("</p>");
    if (batches.isEmpty()) {
      return out.append("<p>No batch is kept here.</p>").toString();
    }
    out.append("<h4>Files</h4>").append(clean(files));
    out.append("<div class=\"hf-charts\">").append(charts(batches, files)).append("</div>");
    out.append("<h4>Stores</h4><div class=\"hf-charts\">").append(stores(batches));
    out.append("</div><h4>Batches</h4><p class=\"hf-quiet\">The newest ");
    out.append(Html.number(batches.size())).append(", the newest first.</p>");
    out.append(Html.table(OF_BATCHES, lines(batches)));
    if (!files.isEmpty()) {
      out.append("<h4>Clean-ups</h4>").append(Html.table(OF_FILES, cleanUps(files)));
    }
    return out.toString();
  }

  private static String facts(Start start, List<Batch> batches, List<Files> files) {
    Facts facts = Facts.of(start);
    if (!batches.isEmpty()) {
      Batch last = batches.get(batches.size() - 1);
      facts.add("batch", Html.number(last.batch()), "ended " + Html.time(last.endedMs()));
      facts.add("keys", Html.number(last.get(Figures.KEYS)), "");
      facts.add("memory", Html.bytes(last.get(Figures.MEMORY_BYTES)), "");
      facts.add(
          "runs",
          Html.number(last.get("holdfastRuns")),
          Html.number(last.get("holdfastUnmerged")) + " changelogs in none yet");
    }
    if (!files.isEmpty()) {
      Files counted = files.get(files.size() - 1);
      String after = "after batch " + Html.number(counted.batch());
      facts.add(
          "files", Html.number(counted.files()), Html.bytes(counted.bytes()) + ", " + after);
      if (counted.closedBytes() > 0) {
        facts.add(
            "live share",
            Html.percent(counted.liveShare()),
            Html.bytes(counted.pinnedBytes()) + " pinned");
      }
    }
    return facts.markup();
  }

  private static String clean(List<Files> files) {
    return files.isEmpty()
        ? "<p class=\"hf-quiet\">How many files there are, and which share of them is live, is"
            + " known after the first clean-up. One comes every"
            + " <code>spark.sql.streaming.minBatchesToRetain</code> &times;"
            + " <code>spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint</code> batches.</p>"
        : "";
  }

  private static String charts(List<Batch> batches, List<Files> files) {
    String written =
        chart("Bytes stored", batches, "holdfastStoredBytes", Html::bytes)
            + chart("Files created", batches, "holdfastFilesCreated", Html::number);
    if (files.isEmpty()) {
      return written;
    }
    List<Bar> count = new ArrayList<>();
    List<Bar> space = new ArrayList<>();
    List<Bar> share = new ArrayList<>();
    int next = 0;
    for (Batch batch : batches) {
      // What the latest clean-up found is what is known until the next one.
      while (next < files.size() && files.get(next).batch() <= batch.batch()) {
        next++;
      }
      long number = batch.batch();
      if (next == 0) {
        String unknown = "batch " + number + ": there was no clean-up yet";
        count.add(new Bar(number, 0, unknown));
        space.add(new Bar(number, new long[] {0, 0}, unknown, ""));
        share.add(new Bar(number, 0, unknown));
        continue;
      }
      Files known = files.get(next - 1);
      String said = "batch " + number + ", by the clean-up after batch " + known.batch() + ": ";
      count.add(new Bar(number, known.files(), said + Html.number(known.files()) + " files"));
      String needed = Html.bytes(known.neededBytes()) + " live, ";
      String pinned = Html.bytes(known.pinnedBytes()) + " pinned in closed files";
      long[] parts = {known.neededBytes(), known.pinnedBytes()};
      space.add(new Bar(number, parts, said + needed + pinned, ""));
      long percent = known.closedBytes() == 0 ? 0 : Math.round(100 * known.liveShare());
      String live = known.closedBytes() == 0 ? "no file is closed" : percent + " % live";
      share.add(new Bar(number, percent, said + live));
    }
    return written
        + Chart.bars("Files that are left", "batches", ONE, count, Html::number)
        + Chart.bars(
            "Bytes of closed files",
            "batches",
            List.of(new Part("hf-blue", "live"), new Part("hf-orange", "pinned")),
            space,
            Html::bytes)
        + Chart.bars("Live share of closed files", "batches", ONE, share, one -> one + " %");
  }

  private static String stores(List<Batch> batches) {
    List<Bar> times = new ArrayList<>();
    List<Bar> layers = new ArrayList<>();
    for (Batch one : batches) {
      long[] ms = {
        one.get("holdfastLoadMs"), one.get("holdfastAppendMs"), one.get("holdfastSealMs")
      };
      String said =
          "batch %d: %s to load, %s to write changelogs, %s to seal"
              .formatted(one.batch(), Html.ms(ms[0]), Html.ms(ms[1]), Html.ms(ms[2]));
      times.add(new Bar(one.batch(), ms, said, ""));
      long[] made = {one.get("holdfastRuns"), one.get("holdfastUnmerged")};
      String of =
          "batch %d: %s runs, %s changelogs in none of them"
              .formatted(one.batch(), Html.number(made[0]), Html.number(made[1]));
      layers.add(new Bar(one.batch(), made, of, ""));
    }
    return chart("Keys", batches, Figures.KEYS, Html::number)
        + chart("Native memory", batches, Figures.MEMORY_BYTES, Html::bytes)
        + chart("Loads", batches, "holdfastLoads", Html::number)
        + chart("Cold reads", batches, "holdfastColdReads", Html::number)
        + Chart.bars(
            "What stores are made of",
            "batches",
            List.of(new Part("hf-blue", "runs"), new Part("hf-orange", "changelogs in none yet")),
            layers,
            Html::number)
        + Chart.bars(
            "Time",
            "batches",
            List.of(
                new Part("hf-blue", "to load"),
                new Part("hf-sky", "to write changelogs"),
                new Part("hf-orange", "to seal")),
            times,
            Html::ms);
  }

  private static String chart(
      String title, List<Batch> batches, String figure, LongFunction<String> unit) {
    ToLongFunction<Batch> value = batch -> batch.get(figure);
    List<Bar> bars = new ArrayList<>();
    for (Batch batch : batches) {
      long found = value.applyAsLong(batch);
      bars.add(new Bar(batch.batch(), found, "batch " + batch.batch() + ": " + unit.apply(found)));
    }
    return Chart.bars(title, "batches", ONE, bars, unit);
  }

  private static List<List<String>> lines(List<Batch> batches) {
    List<List<String>> lines = new ArrayList<>();
    for (Batch one : batches) {
      lines.add(
          List.of(
              Html.number(one.batch()),
              Html.time(one.endedMs()),
              Html.ms(one.get(Figures.BATCH_MS)),
              Html.number(one.get(Figures.INPUT_ROWS)),
              Html.number(one.get(Figures.KEYS)),
              Html.bytes(one.get(Figures.MEMORY_BYTES)),
              Html.bytes(one.get("holdfastStoredBytes")),
              Html.number(one.get("holdfastFilesCreated")),
              Html.number(one.get("holdfastRuns")),
              Html.number(Figures.runsWritten(one)),
              Html.number(one.get("holdfastChangelogs")),
              Html.number(one.get("holdfastUnmerged")),
              Html.number(one.get("holdfastLoads")),
              Html.number(one.get("holdfastColdReads")),
              Html.bytes(one.get("holdfastPinnedBytes")),
              Html.number(one.get("holdfastRewinds")),
              Html.number(one.get("holdfastFilesSealed"))));
    }
    Collections.reverse(lines);
    return lines;
  }

  private static List<List<String>> cleanUps(List<Files> files) {
    List<List<String>> lines = new ArrayList<>();
    for (Files one : files) {
      lines.add(
          List.of(
              Html.number(one.batch()),
              Html.time(one.atMs()),
              Html.number(one.files()),
              Html.bytes(one.bytes()),
              Html.bytes(one.closedBytes()),
              Html.bytes(one.pinnedBytes()),
              one.closedBytes() == 0 ? "" : Html.percent(one.liveShare())));
    }
    Collections.reverse(lines);
    return lines;
  }
}
