package io.holdfast.spark.ui;

import io.holdfast.spark.ui.UiRows.Batch;
import io.holdfast.spark.ui.UiRows.Files;
import io.holdfast.spark.ui.UiRows.Kind;
import io.holdfast.spark.ui.UiRows.Start;
import java.time.Instant;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.scheduler.SparkListenerApplicationEnd;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.sql.streaming.StreamingQueryListener;
import org.apache.spark.sql.streaming.StreamingQueryProgress;
import org.apache.spark.util.kvstore.KVStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Keeps rows of the newest queries and pipelines, as many as Spark keeps for its own page of
 * streaming queries. Events are read from the running application, or by the History Server from an
 * event log.
 */
final class StatusListener extends SparkListener {
  private static final Logger LOG = LoggerFactory.getLogger(StatusListener.class);

  /** Ended starts that remain, and batches or attempts of each; with Spark's default. */
  static final String RETAINED_STARTS_KEY = "spark.sql.streaming.ui.retainedQueries";

  static final String RETAINED_ROWS_KEY = "spark.sql.streaming.ui.retainedProgressUpdates";
  private static final int RETAINED_DEFAULT = 100;

  /** Remembers at most so many queries whose first batch has not ended. */
  private static final int MAX_WITHOUT_BATCH = 1000;
  private static final int MAX_NAME = 200; // characters

  private static final class Known {
    Start start;
    long lastMs; // end of its last batch

    /** The keys of its rows, by type and by age. */
    final Map<Class<?>, ArrayDeque<String>> keys = new HashMap<>();

    Known(Start start) {
      this.start = start;
    }
  }

  private final KVStore store;
  private final int retainedStarts;
  private final int retainedRows;

  /** By run, in the order of their starts. */
  private final LinkedHashMap<String, Known> known = new LinkedHashMap<>();
  private final Map<String, String> runOfQuery = new HashMap<>(); // the current run

  /** Start times of queries without a batch, by run. */
  private final LinkedHashMap<String, Long> startedMs =
      new LinkedHashMap<>() {
        private static final long serialVersionUID = 1;

        @Override
        protected boolean removeEldestEntry(Map.Entry<String, Long> eldest) {
          return size() > MAX_WITHOUT_BATCH;
        }
      };

  private final AtomicBoolean warned = new AtomicBoolean();

  StatusListener(SparkConf conf, KVStore store) {
    this.store = store;
    retainedStarts = Math.max(1, conf.getInt(RETAINED_STARTS_KEY, RETAINED_DEFAULT));
    retainedRows = Math.max(1, conf.getInt(RETAINED_ROWS_KEY, RETAINED_DEFAULT));
  }

  @Override
  public void onOtherEvent(SparkListenerEvent event) {
    try {
      take(event);
    } catch (Exception | LinkageError e) {
      warn(e);
    }
  }

  @Override
  public void onApplicationEnd(SparkListenerApplicationEnd event) {
    try {
      for (Known one : new ArrayList<>(known.values())) {
        if (one.start.endedMs() == 0) {
          end(one.start.run(), event.time(), "");
        }
      }
    } catch (Exception | LinkageError e) {
      warn(e);
    }
  }

  /** Warns once: nothing but the tab depends on the rows. */
  private void warn(Throwable e) {
    if (warned.compareAndSet(false, true)) {
      LOG.warn("The Holdfast tab of Spark's UI does not show everything", e);
    }
  }

  private void take(SparkListenerEvent event) throws Exception {
    if (event instanceof StreamingQueryListener.QueryStartedEvent started) {
      startedMs.put(started.runId().toString(), millis(started.timestamp()));
    } else if (event instanceof StreamingQueryListener.QueryProgressEvent progress) {
      take(progress.progress());
    } else if (event instanceof StreamingQueryListener.QueryTerminatedEvent ended) {
      String run = ended.runId().toString();
      startedMs.remove(run);
      end(run, lastMs(run), ended.exception().isEmpty() ? "" : ended.exception().get());
    } else if (event instanceof UiEvents.FilesCounted counted) {
      String run = runOfQuery.get(counted.queryId());
      if (run != null) {
        add(run, Files.class, new Files(run, counted));
      }
    } else if (event instanceof UiEvents.PipelineOpened opened) {
      begin(
          new Start(
              opened.run(),
              Kind.PIPELINE,
              UiEvents.cut(opened.pipeline(), MAX_NAME),
              opened.folder(),
              opened.atMs(),
              0,
              ""));
    } else if (event instanceof UiEvents.AttemptEnded attempt) {
      add(attempt.run(), UiEvents.AttemptEnded.class, attempt);
    } else if (event instanceof UiEvents.PipelineClosed closed) {
      end(closed.run(), closed.atMs(), "");
    }
  }

  private void take(StreamingQueryProgress progress) throws Exception {
    Map<String, Long> figures = Figures.of(progress);
    if (figures.isEmpty()) {
      return;
    }
    String run = progress.runId().toString();
    long beganMs = millis(progress.timestamp());
    Long since = startedMs.remove(run);
    if (!known.containsKey(run)) {
      String id = progress.id().toString();
      String name = progress.name() == null ? id : UiEvents.cut(progress.name(), MAX_NAME);
      runOfQuery.put(id, run);
      begin(new Start(run, Kind.QUERY, name, id, since == null ? beganMs : since, 0, ""));
    }
    long endedMs = beganMs + figures.get(Figures.BATCH_MS);
    known.get(run).lastMs = endedMs;
    add(run, Batch.class, new Batch(run, progress.batchId(), endedMs, figures));
  }

  /** A query ended with its last batch, or later. Its last event has no time. */
  private long lastMs(String run) {
    Known start = known.get(run);
    return start == null ? 0 : Math.max(start.start.startedMs(), start.lastMs);
  }

  private void begin(Start start) throws Exception {
    store.write(start);
    known.put(start.run(), new Known(start));
    dropOldest();
  }

  private void end(String run, long atMs, String why) throws Exception {
    Known ended = known.get(run);
    if (ended != null) {
      ended.start = ended.start.ended(atMs, UiEvents.cut(why, UiEvents.MAX_CAUSE));
      store.write(ended.start);
      dropOldest();
    }
  }

  /** Keeps a row of a start, and deletes rows that are too old. */
  private <R extends Row> void add(String run, Class<R> type, R row) throws Exception {
    Known start = known.get(run);
    if (start == null) {
      return;
    }
    store.write(row);
    ArrayDeque<String> keys = start.keys.computeIfAbsent(type, any -> new ArrayDeque<>());
    // A batch that runs again after a failure replaces its row.
    if (!row.key().equals(keys.peekLast())) {
      keys.add(row.key());
    }
    while (keys.size() > retainedRows) {
      store.delete(type, keys.remove());
    }
  }

  /** Drops the oldest of the ended starts if there are too many. */
  private void dropOldest() throws Exception {
    List<Known> ended = known.values().stream().filter(one -> one.start.endedMs() != 0).toList();
    for (Known old : ended.subList(0, Math.max(0, ended.size() - retainedStarts))) {
      for (Map.Entry<Class<?>, ArrayDeque<String>> of : old.keys.entrySet()) {
        for (String key : of.getValue()) {
          store.delete(of.getKey(), key);
        }
      }
      store.delete(Start.class, old.start.run());
      known.remove(old.start.run());
      runOfQuery.values().remove(old.start.run());
    }
  }

  private static long millis(String timestamp) {
    return Instant.parse(timestamp).toEpochMilli();
  }
}
