package io.holdfast.spark.driver;

import io.holdfast.spark.Native;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.ui.UiEvents;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.Consumer;
import java.util.function.LongFunction;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.util.SerializableConfiguration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Driver side of regional pipelines: the open pipelines, and the messages of their workers, for the
 * driver in Python. A pipeline has a name and a folder of segments.
 */
public final class RegionalPipelines {
  private static final Logger LOG = LoggerFactory.getLogger(RegionalPipelines.class);

  /** Slower executors miss a message. The next message tells them the same and more. */
  private static final long ANSWER_MS = 10_000;

  /** Bounds on messages that wait for {@link #poll}. Beyond them senders wait. */
  private static final int MAX_QUEUED = 4096;

  private static final long MAX_QUEUED_BYTES = 64L << 20;

  /** For one {@link #poll} beyond its first message: large results reach Python more slowly. */
  private static final int MAX_POLLED_BYTES = 1 << 20;

  private static final class Pipeline {
    final DriverRequest.Run run;
    final SegmentFolder folder;
    private final ArrayDeque<byte[]> queue = new ArrayDeque<>();
    private long queuedBytes;
    private boolean closed;
    private boolean woken;
    private volatile String wasteful = ""; // names of ended managers' files to rewrite, a line each

    Pipeline(DriverRequest.Run run, SegmentFolder folder) {
      this.run = run;
      this.folder = folder;
    }

    synchronized DriverReply take(byte[] data) {
      if (closed) {
        return refused(run.pipeline());
      }
      boolean full = queue.size() >= MAX_QUEUED || queuedBytes + data.length > MAX_QUEUED_BYTES;
      // One message always fits, even a larger one.
      if (full && !queue.isEmpty()) {
        return new DriverReply.Full();
      }
      queue.add(data);
      queuedBytes += data.length;
      notifyAll();
      return new DriverReply.Done();
    }

    synchronized byte[] poll(long timeoutMs) {
      long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(timeoutMs);
      while (queue.isEmpty() && !closed) {
        if (woken) {
          woken = false;
          return null;
        }
        long left = deadline - System.nanoTime();
        if (left <= 0) {
          return null;
        }
        try {
          TimeUnit.NANOSECONDS.timedWait(this, left);
        } catch (InterruptedException e) {
          Thread.currentThread().interrupt();
          return null;
        }
      }
      if (queue.isEmpty()) {
        throw new IllegalStateException(notOpen(run.pipeline()));
      }
      return takeWaiting();
    }

    /** Takes the messages that fit, at least one, each after its length. */
    private byte[] takeWaiting() {
      List<byte[]> taken = new ArrayList<>();
      int size = 0;
      do {
        byte[] data = queue.remove();
        queuedBytes -= data.length;
        size += Integer.BYTES + data.length;
        taken.add(data);
      } while (!queue.isEmpty()
          && size + Integer.BYTES + queue.peek().length <= MAX_POLLED_BYTES);
      ByteBuffer all = ByteBuffer.allocate(size).order(ByteOrder.LITTLE_ENDIAN);
      for (byte[] data : taken) {
        all.putInt(data.length).put(data);
      }
      return all.array();
    }

    synchronized void wake() {
      woken = true;
      notifyAll();
    }

    synchronized void close() {
      closed = true;
      queue.clear();
      notifyAll();
    }
  }

  private final Terms terms;
  private final Configuration conf;
  private final RegionalMetrics metrics;

  private final Consumer<SparkListenerEvent> events;

  /** By name. Adding one needs the lock, so that two pipelines never share a folder. */
  private final Map<String, Pipeline> open = new ConcurrentHashMap<>();

  private long lastRun;

  RegionalPipelines(
      Terms terms,
      Configuration conf,
      RegionalMetrics metrics,
      Consumer<SparkListenerEvent> events) {
    this.terms = terms;
    this.conf = conf;
    this.metrics = metrics;
    this.events = events;
  }

  private static String notOpen(String pipeline) {
    return "The regional pipeline '" + pipeline + "' is not open in this application";
  }

  private static DriverReply refused(String pipeline) {
    return new DriverReply.Refused(notOpen(pipeline));
  }

  private SegmentFolder folder(String location) {
    return SegmentFolder.at(location, conf);
  }

  /**
   * Opens a pipeline: workers may connect, and their messages wait for {@link #poll}.
   *
   * @param location path or URI of the folder for segments, which no other open pipeline uses
   * @throws IllegalStateException if the pipeline is open, or another one has this folder
   * @throws IllegalArgumentException if the folder belongs to state stores
   */
  public synchronized void open(String name, String location) {
    SegmentFolder folder = folder(location);
    if (folder.isOfStateStores()) {
      throw new IllegalArgumentException(
          folder.name + " belongs to state stores: a regional pipeline needs a folder of its own");
    }
    for (Pipeline pipeline : open.values()) {
      if (pipeline.run.pipeline().equals(name) || pipeline.folder.name.equals(folder.name)) {
        throw new IllegalStateException(
            "The regional pipeline '%s' is open already, with its segments in %s"
                .formatted(pipeline.run.pipeline(), pipeline.folder.name));
      }
    }
    DriverRequest.Run run = new DriverRequest.Run(name, ++lastRun);
    open.put(name, new Pipeline(run, folder));
    metrics.begin(name);
    events.accept(
        new UiEvents.PipelineOpened(uiRun(run), name, folder.name, System.currentTimeMillis()));
  }

  /** If it is open: refuses its workers, drops waiting messages, has executors seal their files. */
  public void close(String name) {
    Pipeline pipeline = open.remove(name);
    if (pipeline == null) {
      return;
    }
    pipeline.close();
    events.accept(new UiEvents.PipelineClosed(uiRun(pipeline.run), System.currentTimeMillis()));
    String dir = pipeline.folder.name;
    ask(dir, term -> new ExecutorRequest.CloseManager(dir, term));
  }

  /**
   * Sends a message of {@code holdfast._core.manager_message} to the managers of a folder, on all
   * executors that are known to live. Returns how many carried it out.
   */
  public int tellManagers(String folder, byte[] message) {
    String dir = folder(folder).name;
    return ask(dir, term -> new ExecutorRequest.TellManager(dir, term, message));
  }

  public void showMetrics(String pipeline, String lines) {
    metrics.show(pipeline, lines);
  }

  /** Shows the end of an attempt, a line of the history, in Spark's UI and in the event log. */
  public void attemptEnded(String name, String line) {
    events.accept(UiEvents.AttemptEnded.of(uiRun(named(name).run), line));
  }

  private static String uiRun(DriverRequest.Run run) {
    return "pipeline-" + run.number();
  }

  /** Returns the terms of managers of this folder whose executors are not known to be gone. */
  public long[] liveTerms(String folder) {
    return terms.live(folder(folder).name);
  }

  /** Returns the newest term that this application gave for this folder; 0 without one. */
  public long newestTerm(String folder) {
    return terms.newest(folder(folder).name);
  }

  /** Returns a handle for {@link #reclaimOrphans}. All terms in the folder count as known. */
  public long openOrphans(String segmentsFolder, String metadataFolder, String pipeline) {
    SegmentFolder segments = folder(segmentsFolder);
    SegmentFolder metadata = folder(metadataFolder);
    return Native.openOrphans(
        segments.name, segments.files(), metadata.name, metadata.files(), pipeline);
  }

  /**
   * Deletes files of managers that are gone, if no retained checkpoint needs them. No attempt may
   * be under way. The first three exceptions come before any file is deleted.
   *
   * @param retainedIds all retained checkpoints; reads the metadata of each once
   * @param liveTerms see {@link #liveTerms}: their files remain
   * @param newestTerm see {@link #newestTerm}; asked for before {@code liveTerms}
   * @return the work done, for the log, empty if there was none; then the names of files that waste
   *     too much, see {@link #nameWasteful}
   * @throws io.holdfast.spark.FencedException if a file has a newer term, because another
   *     application writes to the folder
   * @throws io.holdfast.spark.MissingStateException if needed segments or metadata are missing
   * @throws IllegalArgumentException if a checkpoint gives an owner two origins, or a newer origin
   *     than itself
   * @throws io.holdfast.spark.HoldfastException if the folder cannot be listed
   */
  public String[] reclaimOrphans(
      long orphans,
      List<? extends Number> retainedIds,
      List<? extends Number> liveTerms,
      long newestTerm) {
    return Native.reclaimOrphans(orphans, longs(retainedIds), longs(liveTerms), newestTerm);
  }

  /** A second call does nothing. */
  public void closeOrphans(long orphans) {
    Native.closeOrphans(orphans);
  }

  /** Small numbers from Python are Integers, others Longs. */
  private static long[] longs(List<? extends Number> numbers) {
    return numbers.stream().mapToLong(Number::longValue).toArray();
  }

  /** Names files, a line each. New managers write the segments in them again. */
  public void nameWasteful(String name, String files) {
    named(name).wasteful = files;
  }

  /**
   * Returns messages of workers in their order, or null if none arrived in time or {@link #wake}
   * was called. Returns all messages that wait: a call from Python takes 40 ms if its result has
   * between about 6 and 60 KB, because both ends of the connection wait (Nagle's algorithm, delayed
   * acknowledgements).
   *
   * @return before each message its length, 4 bytes, little-endian
   * @throws IllegalStateException if the pipeline is not open, or is closed during the call
   */
  public byte[] poll(String name, long timeoutMs) {
    return named(name).poll(timeoutMs);
  }

  /**
   * Lets the current {@link #poll}, or else the next one, return without a message, because the
   * driver has other work. Does nothing if the pipeline is not open.
   */
  public void wake(String name) {
    Pipeline pipeline = open.get(name);
    if (pipeline != null) {
      pipeline.wake();
    }
  }

  synchronized void stop() {
    open.values().forEach(Pipeline::close);
    open.clear();
  }

  DriverReply take(DriverRequest.Sent sent) {
    Pipeline pipeline = of(sent.run());
    return pipeline == null ? refused(sent.run().pipeline()) : pipeline.take(sent.data());
  }

  DriverReply welcome(DriverRequest.Hello hello) {
    Pipeline pipeline = open.get(hello.pipeline());
    if (pipeline == null) {
      return refused(hello.pipeline());
    }
    String dir = folder(hello.folder()).name;
    if (!pipeline.folder.name.equals(dir)) {
      return new DriverReply.Refused(
          "The segments of the regional pipeline '%s' are in %s, not in %s"
              .formatted(hello.pipeline(), pipeline.folder.name, dir));
    }
    return new DriverReply.Welcome(dir, pipeline.run.number());
  }

  DriverReply term(DriverRequest.PipelineTerm wanted) {
    Pipeline pipeline = of(wanted.run());
    if (pipeline == null) {
      return refused(wanted.run().pipeline());
    }
    SegmentFolder folder = pipeline.folder;
    Terms.Writer writer = new Terms.Writer(wanted.executorId(), wanted.executor());
    long term = terms.next(folder, writer);
    if (of(wanted.run()) == null) {
      // Closed, perhaps before the term was given: then no manager of this term was told to close.
      terms.forget(folder.name, term);
      return refused(wanted.run().pipeline());
    }
    // After the term: older terms that are not among these have ended.
    long[] live = terms.live(folder.name);
    // Output may be on another file system than the segments.
    return new DriverReply.PipelineTerm(
        term, new SerializableConfiguration(folder.conf), live, pipeline.wasteful);
  }

  /** The pipeline of this run; null if it was closed, or begun again. */
  private Pipeline of(DriverRequest.Run run) {
    Pipeline pipeline = open.get(run.pipeline());
    return pipeline != null && pipeline.run.equals(run) ? pipeline : null;
  }

  private Pipeline named(String name) {
    Pipeline pipeline = open.get(Objects.requireNonNull(name, "pipeline"));
    if (pipeline == null) {
      throw new IllegalStateException(notOpen(name));
    }
    return pipeline;
  }

  private record Asked(Terms.Writer writer, CompletableFuture<ExecutorReply> reply) {}

  /** Asks all managers of a folder at once, each by its term; returns how many did it. */
  private int ask(String dir, LongFunction<ExecutorRequest> request) {
    List<Asked> all = new ArrayList<>();
    terms
        .writers(dir)
        .forEach(
            (term, writer) -> all.add(new Asked(writer, writer.link().ask(request.apply(term)))));
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ANSWER_MS);
    int done = 0;
    for (Asked asked : all) {
      done += isDone(asked, deadline - System.nanoTime()) ? 1 : 0;
    }
    return done;
  }

  /** Returns true if the manager did it. */
  private static boolean isDone(Asked asked, long nanosLeft) {
    try {
      ExecutorReply reply = asked.reply().get(Math.max(0, nanosLeft), TimeUnit.NANOSECONDS);
      if (reply.outcome() == ExecutorReply.Outcome.FAILED) {
        LOG.warn("A manager on {} failed: {}", asked.writer(), reply.error());
      }
      return reply.outcome() == ExecutorReply.Outcome.DONE;
    } catch (ExecutionException | TimeoutException e) {
      LOG.warn("No answer of {}", asked.writer(), e);
      return false;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return false;
    }
  }
}
