package io.holdfast.spark.ui;

import static io.holdfast.spark.ui.Html.fact;
import static io.holdfast.spark.ui.Html.format;
import static io.holdfast.spark.ui.Html.number;
import static io.holdfast.spark.ui.Html.text;

import io.holdfast.spark.store.StoreMetrics;
import io.holdfast.spark.ui.Chart.Bar;
import io.holdfast.spark.ui.Chart.Part;
import io.holdfast.spark.ui.Html.Column;
import io.holdfast.spark.ui.UiEvents.FilesCounted;
import io.holdfast.spark.ui.UiRows.Batch;
import io.holdfast.spark.ui.UiRows.Start;
import java.util.List;
import java.util.function.Function;
import java.util.function.LongFunction;

/** A query: its bad rows, and the files and the work of its stores, batch by batch. */
final class QueryPage {
  private static final List<Column<Batch>> OF_BATCHES =
      List.of(
          Column.figure("batch", "", one -> number(one.batch())),
          Column.word("ended", "", one -> Html.time(one.endedMs())),
          Column.figure("took", "", one -> Html.ms(one.get(Figures.BATCH_MS))),
          count("rows", "Rows that the batch read", Figures.INPUT_ROWS),
          count("bad rows", "Rows that the batch set aside", Figures.BAD_ROWS),
          count("keys", "Keys in the state after it", Figures.KEYS),
          bytes("memory", "Native memory that the state takes", Figures.MEMORY_BYTES),
          bytes("stored", "Bytes written to files", "holdfastStoredBytes"),
          count("files created", "", "holdfastFilesCreated"),
          count("runs", "Base images and delta runs that the stores are made of", "holdfastRuns"),
          Column.figure(
              "runs written",
              "Base images and delta runs written",
              one -> number(Figures.runsWritten(one))),
          count("changelogs", "Commits that wrote a changelog", "holdfastChangelogs"),
          count("unmerged", "Changelogs that are in no run yet", "holdfastUnmerged"),
          count("loads", "Versions read from files", "holdfastLoads"),
          count("cold reads", "Reads of runs for keys not in memory", "holdfastColdReads"),
          bytes(
              "pinned",
              "Bytes that no retained batch needs, when the batch told of it",
              "holdfastPinnedBytes"),
          count("rewinds", "Versions served by undoing a commit", "holdfastRewinds"),
          count("files sealed", "", "holdfastFilesSealed"));

  private static final List<Column<FilesCounted>> OF_FILES =
      List.of(
          Column.figure("after batch", "", one -> number(one.batch())),
          Column.word("at", "", one -> Html.time(one.atMs())),
          Column.figure(
              "files",
              "Files that are left, those that are written to included",
              one -> number(one.files())),
          Column.figure("bytes", "Bytes of these files", one -> Html.bytes(one.bytes())),
          Column.figure(
              "closed", "Bytes of the files that are closed", one -> Html.bytes(one.closedBytes())),
          Column.figure("pinned", FilesCounted.PINNED, one -> Html.bytes(one.pinnedBytes())),
          Column.figure("live", FilesCounted.LIVE, FilesCounted::live));

  private static final String NO_CLEAN_UP =
      """
      <p class="hf-quiet">How many files there are, and which share of them is live, is known \
      after the first clean-up. One comes every \
      <code>spark.sql.streaming.minBatchesToRetain</code> &times; \
      <code>spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint</code> batches.</p>
      """;

  private QueryPage() {}

  private static Column<Batch> count(String head, String explanation, String figure) {
    return Column.figure(head, explanation, one -> number(one.get(figure)));
  }

  private static Column<Batch> bytes(String head, String explanation, String figure) {
    return Column.figure(head, explanation, one -> Html.bytes(one.get(figure)));
  }

  static String of(RowStore rows, Start start) throws Exception {
    List<Batch> batches = rows.of(Batch.class, start.run());
    List<FilesCounted> files = rows.cleanUps(start.run());
    String head =
        start.head(facts(batches, files))
            + format(
                "<p class=\"hf-quiet\">Id %s, run %s</p>", text(start.place()), text(start.run()));
    if (batches.isEmpty()) {
      return head + "<p>No batch is kept here.</p>";
    }
    return format(
        """
        %s%s%s
        <h4>Batches</h4><p class="hf-quiet">The newest %s, the newest first.</p>%s%s
        """,
        head,
        has(batches, Figures.BAD_ROWS)
            ? chart("Bad rows", batches, Figures.BAD_ROWS, Html::number)
            : "",
        has(batches, Figures.KEYS) ? ofState(batches, files) : "",
        number(batches.size()),
        Html.table(OF_BATCHES, UiRows.reversed(batches)),
        files.isEmpty()
            ? ""
            : "<h4>Clean-ups</h4>" + Html.table(OF_FILES, UiRows.reversed(files)));
  }

  private static boolean has(List<Batch> batches, String figure) {
    return batches.stream().anyMatch(one -> one.figures().containsKey(figure));
  }

  private static String ofState(List<Batch> batches, List<FilesCounted> files) {
    return format(
        """
        <h4>Files</h4>%s<div class="hf-charts">%s%s%s</div>
        <h4>Stores</h4><div class="hf-charts">%s</div>
        """,
        files.isEmpty() ? NO_CLEAN_UP : "",
        chart("Bytes stored", batches, "holdfastStoredBytes", Html::bytes),
        chart("Files created", batches, "holdfastFilesCreated", Html::number),
        files.isEmpty() ? "" : ofFiles(batches, files),
        ofStores(batches));
  }

  private static String facts(List<Batch> batches, List<FilesCounted> files) {
    StringBuilder facts = new StringBuilder();
    if (!batches.isEmpty()) {
      Batch last = batches.get(batches.size() - 1);
      String unmerged = number(last.get("holdfastUnmerged")) + " changelogs in none yet";
      facts.append(fact("batch", number(last.batch()), "ended " + Html.time(last.endedMs())));
      facts.append(fact("keys", number(last.get(Figures.KEYS)), ""));
      facts.append(fact("memory", Html.bytes(last.get(Figures.MEMORY_BYTES)), ""));
      facts.append(fact("runs", number(last.get("holdfastRuns")), unmerged));
      long parked = last.get(StoreMetrics.PARKED_PARTITIONS);
      if (parked > 0) {
        String rows = number(last.get(StoreMetrics.PARKED_ROWS));
        String since = number(last.get(StoreMetrics.PARKED_SINCE));
        String said = rows + " rows wait, since batch " + since;
        facts.append(fact("parked partitions", number(parked), said));
      }
    }
    if (!files.isEmpty()) {
      FilesCounted counted = files.get(files.size() - 1);
      String bytes = Html.bytes(counted.bytes()) + ", after batch " + number(counted.batch());
      facts.append(fact("files", number(counted.files()), bytes));
      if (counted.closedBytes() > 0) {
        String pinned = Html.bytes(counted.pinnedBytes()) + " pinned";
        facts.append(fact("live share", Html.percent(counted.liveShare()), pinned));
      }
    }
    return facts.toString();
  }

  private static String ofFiles(List<Batch> batches, List<FilesCounted> files) {
    Function<FilesCounted, Bar> count =
        found -> new Bar(0, number(found.files()) + " files", found.files());
    Function<FilesCounted, Bar> space =
        found -> {
          long[] bytes = {found.neededBytes(), found.pinnedBytes()};
          String form = "%s live, %s pinned in closed files";
          return new Bar(0, format(form, Html.bytes(bytes[0]), Html.bytes(bytes[1])), bytes);
        };
    Function<FilesCounted, Bar> share =
        found -> {
          long percent = found.closedBytes() == 0 ? 0 : Math.round(100 * found.liveShare());
          String live = found.closedBytes() == 0 ? "no file is closed" : percent + " % live";
          return new Bar(0, live, percent);
        };
    LongFunction<String> unit = one -> one + " %";
    List<Part> parts = List.of(new Part("hf-blue", "live"), new Part("hf-orange", "pinned"));
    return bars("Files that are left", Chart.ONE, batches, known(files, count), Html::number)
        + bars("Bytes of closed files", parts, batches, known(files, space), Html::bytes)
        + bars("Live share of closed files", Chart.ONE, batches, known(files, share), unit);
  }

  /** The bar of a batch shows the latest clean-up until then: nothing newer is known. */
  private static Function<Batch, Bar> known(
      List<FilesCounted> files, Function<FilesCounted, Bar> bar) {
    return batch ->
        files.stream()
            .filter(one -> one.batch() <= batch.batch())
            .reduce((older, newer) -> newer)
            .map(
                one -> {
                  Bar found = bar.apply(one);
                  String by = ", by the clean-up after batch " + one.batch() + ": ";
                  return said(batch, by + found.said(), found.figures());
                })
            .orElseGet(() -> said(batch, ": there was no clean-up yet", 0));
  }

  private static Bar said(Batch batch, String said, long... figures) {
    return new Bar(batch.batch(), "batch " + batch.batch() + said, figures);
  }

  private static String ofStores(List<Batch> batches) {
    Function<Batch, Bar> layers =
        one -> {
          long runs = one.get("holdfastRuns");
          long unmerged = one.get("holdfastUnmerged");
          String form = ": %s runs, %s changelogs in none of them";
          return said(one, format(form, number(runs), number(unmerged)), runs, unmerged);
        };
    Function<Batch, Bar> times =
        one -> {
          long load = one.get("holdfastLoadMs");
          long append = one.get("holdfastAppendMs");
          long seal = one.get("holdfastSealMs");
          String form = ": %s to load, %s to write changelogs, %s to seal";
          String took = format(form, Html.ms(load), Html.ms(append), Html.ms(seal));
          return said(one, took, load, append, seal);
        };
    List<Part> ofLayers =
        List.of(new Part("hf-blue", "runs"), new Part("hf-orange", "changelogs in none yet"));
    List<Part> ofTimes =
        List.of(
            new Part("hf-blue", "to load"),
            new Part("hf-sky", "to write changelogs"),
            new Part("hf-orange", "to seal"));
    return chart("Keys", batches, Figures.KEYS, Html::number)
        + chart("Native memory", batches, Figures.MEMORY_BYTES, Html::bytes)
        + chart("Loads", batches, "holdfastLoads", Html::number)
        + chart("Cold reads", batches, "holdfastColdReads", Html::number)
        + bars("Layers of the stores", ofLayers, batches, layers, Html::number)
        + bars("Time", ofTimes, batches, times, Html::ms);
  }

  private static String chart(
      String title, List<Batch> batches, String figure, LongFunction<String> unit) {
    Function<Batch, Bar> bar =
        one -> said(one, ": " + unit.apply(one.get(figure)), one.get(figure));
    return bars(title, Chart.ONE, batches, bar, unit);
  }

  private static String bars(
      String title,
      List<Part> parts,
      List<Batch> batches,
      Function<Batch, Bar> bar,
      LongFunction<String> unit) {
    return Chart.bars(title, "batches", parts, batches, bar, unit);
  }
}
