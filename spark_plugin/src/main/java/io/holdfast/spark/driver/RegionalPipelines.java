package io.holdfast.spark.driver;

import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.ui.UiEvents;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.util.SerializableConfiguration;

/** Driver side of regional pipelines: the open pipelines, and the messages of their workers. */
public final class RegionalPipelines {
  /** Bounds on messages that wait for {@link #poll}. Beyond them senders wait. */
  private static final int MAX_QUEUED = 4096;

  private static final long MAX_QUEUED_BYTES = 64L << 20;

  /**
   * Bound on the result of one {@link #poll}, beyond its first message. A larger result takes
   * longer per byte on the way to Python.
   */
  private static final int MAX_POLLED_BYTES = 1 << 20;

  private static final class Pipeline {
    final DriverRequest.Run run;
    final SegmentFolder folder;
    private final ArrayDeque<byte[]> queue = new ArrayDeque<>();
    private long queuedBytes;
    private boolean closed;
    private boolean woken;

    /** Names of files of ended managers whose segments are written again, a line each. */
    private volatile String wasteful = "";

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

    /** Takes the messages that fit off the queue, at least one, each behind its length. */
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

  /** By name. The lock is needed to add one, so that two pipelines never share a folder. */
  private final Map<String, Pipeline> open = new ConcurrentHashMap<>();

  private long lastRun;

  /**
   * @param events posts events to the listeners of the application
   */
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

  public SegmentFolder folder(String location) {
    return SegmentFolder.at(location, conf);
  }

  /** Opens a pipeline with its segments in a folder that no other open pipeline uses. */
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

  /** Closes a pipeline; returns the folder of its segments, null if it was not open. */
  public SegmentFolder close(String name) {
    Pipeline pipeline = open.remove(name);
    if (pipeline == null) {
      return null;
    }
    pipeline.close();
    events.accept(new UiEvents.PipelineClosed(uiRun(pipeline.run), System.currentTimeMillis()));
    return pipeline.folder;
  }

  /**
   * Tells listeners of the application about the end of an attempt.
   *
   * @param line of the history of a pipeline
   */
  public void attemptEnded(String name, String line) {
    events.accept(UiEvents.AttemptEnded.of(uiRun(named(name).run), line));
  }

  /** The name of a run for listeners. */
  private static String uiRun(DriverRequest.Run run) {
    return "pipeline-" + run.number();
  }

  /** Names the files of ended managers whose segments managers write again. */
  public void nameWasteful(String name, String files) {
    named(name).wasteful = files;
  }

  /** Messages of workers; null if none came in time, or after a call of {@link #wake}. */
  public byte[] poll(String name, long timeoutMs) {
    return named(name).poll(timeoutMs);
  }

  /** Lets a poll return; nothing if the pipeline is not open. */
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
      // The pipeline was closed meanwhile, and perhaps before the term was given. Then no manager
      // of this term was told to close.
      terms.forget(folder.name, term);
      return refused(wanted.run().pipeline());
    }
    // Behind the term: older ones that are not among these have ended.
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
}
