package io.holdfast.spark.driver;

import io.holdfast.spark.files.SegmentFolder;
import io.holdfast.spark.rpc.MessageBytes;
import io.holdfast.spark.rpc.RegionalMessages;
import io.holdfast.spark.ui.UiEvents;
import java.nio.ByteBuffer;
import java.nio.ByteOrder;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.concurrent.TimeUnit;
import java.util.function.Consumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.scheduler.SparkListenerEvent;
import org.apache.spark.util.SerializableConfiguration;

/** Driver side of regional pipelines: which are open, and what goes between driver and workers. */
public final class RegionalPipelines {
  /** Bounds on messages that wait for {@link #poll}; beyond them senders wait. */
  private static final int MAX_QUEUED = 4096;

  private static final long MAX_QUEUED_BYTES = 64L << 20;

  /**
   * Bound on what one {@link #poll} returns, beyond its first message. The way to Python takes the
   * longer per byte the more there is at once.
   */
  private static final int MAX_POLLED_BYTES = 1 << 20;

  private static final class Pipeline {
    final RegionalMessages.Run run;
    final SegmentFolder folder;
    private final ArrayDeque<byte[]> queue = new ArrayDeque<>();
    private long queuedBytes;
    private boolean closed;
    private boolean woken;

    Pipeline(RegionalMessages.Run run, SegmentFolder folder) {
      this.run = run;
      this.folder = folder;
    }

    synchronized Object take(byte[] data) {
      if (closed) {
        return notOpen(run.pipeline());
      }
      boolean full = queue.size() >= MAX_QUEUED || queuedBytes + data.length > MAX_QUEUED_BYTES;
      // One message always fits, however large it is.
      if (full && !queue.isEmpty()) {
        return RegionalMessages.FULL;
      }
      queue.add(data);
      queuedBytes += data.length;
      notifyAll();
      return true;
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

    /** Takes messages off the queue, which has one: those that fit, each behind its length. */
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
  private final Map<String, Pipeline> open = new HashMap<>();
  private long lastRun;

  /**
   * @param events takes what listeners of the application shall hear
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
            "The regional pipeline '"
                + pipeline.run.pipeline()
                + "' is open already, with its segments in "
                + pipeline.folder.name);
      }
    }
    open.put(name, new Pipeline(new RegionalMessages.Run(name, ++lastRun), folder));
    metrics.begin(name);
    String run = uiRun(open.get(name).run);
    events.accept(
        new UiEvents.PipelineOpened(run, name, folder.name, System.currentTimeMillis()));
  }

  /**
   * Closes a pipeline, if it is open: its workers are refused from now on.
   *
   * @return the folder of its segments; null if it was not open
   */
  public SegmentFolder close(String name) {
    Pipeline pipeline;
    synchronized (this) {
      pipeline = open.remove(name);
    }
    if (pipeline == null) {
      return null;
    }
    pipeline.close();
    events.accept(
        new UiEvents.PipelineClosed(uiRun(pipeline.run), System.currentTimeMillis()));
    return pipeline.folder;
  }

  /**
   * Listeners of the application hear of the end of an attempt.
   *
   * @param line as the history of a pipeline has it
   */
  public void attemptEnded(String name, String line) {
    events.accept(UiEvents.AttemptEnded.of(uiRun(named(name).run), line));
  }

  /** What listeners know an opening of a pipeline by. */
  private static String uiRun(RegionalMessages.Run run) {
    return "pipeline-" + run.number();
  }

  /** Messages of workers; null when none came in time, or after a call of wake. */
  public byte[] poll(String name, long timeoutMs) {
    return named(name).poll(timeoutMs);
  }

  /** Lets a poll return; nothing if the pipeline is not open. */
  public void wake(String name) {
    Pipeline pipeline;
    synchronized (this) {
      pipeline = open.get(name);
    }
    if (pipeline != null) {
      pipeline.wake();
    }
  }

  synchronized void stop() {
    open.values().forEach(Pipeline::close);
    open.clear();
  }

  /** Answers a message of an executor; null if it is not about regional pipelines. */
  Object receive(Object message) {
    if (message instanceof RegionalMessages.Hello hello) {
      return welcome(hello);
    }
    if (message instanceof RegionalMessages.TermWanted wanted) {
      return term(wanted);
    }
    if (message instanceof RegionalMessages.TermEnded ended) {
      terms.forget(ended.dir(), ended.term());
      return true;
    }
    if (message instanceof RegionalMessages.Sent sent) {
      Pipeline pipeline = of(sent.run());
      return pipeline == null ? notOpen(sent.run().pipeline()) : pipeline.take(sent.data());
    }
    return null;
  }

  private Object welcome(RegionalMessages.Hello hello) {
    Pipeline pipeline;
    synchronized (this) {
      pipeline = open.get(hello.pipeline());
    }
    if (pipeline == null) {
      return notOpen(hello.pipeline());
    }
    String dir = folder(hello.folder()).name;
    if (!pipeline.folder.name.equals(dir)) {
      return "The segments of the regional pipeline '"
          + hello.pipeline()
          + "' are in "
          + pipeline.folder.name
          + ", not in "
          + dir;
    }
    return MessageBytes.of(new RegionalMessages.Welcome(dir, pipeline.run.number()));
  }

  private Object term(RegionalMessages.TermWanted wanted) {
    Pipeline pipeline = of(wanted.run());
    if (pipeline == null) {
      return notOpen(wanted.run().pipeline());
    }
    SegmentFolder folder = pipeline.folder;
    Terms.Writer writer = new Terms.Writer(wanted.executorId(), wanted.executor());
    long term = terms.next(folder, writer);
    if (of(wanted.run()) == null) {
      // Closed meanwhile, perhaps before this term was given: then close asked no manager of it.
      terms.forget(folder.name, term);
      return notOpen(wanted.run().pipeline());
    }
    // Output may be on another file system than the segments.
    SerializableConfiguration conf = new SerializableConfiguration(folder.conf);
    return MessageBytes.of(new RegionalMessages.TermGiven(term, conf));
  }

  /** The pipeline of this run; null when it was closed, or begun again. */
  private synchronized Pipeline of(RegionalMessages.Run run) {
    Pipeline pipeline = open.get(run.pipeline());
    return pipeline != null && pipeline.run.equals(run) ? pipeline : null;
  }

  private synchronized Pipeline named(String name) {
    Pipeline pipeline = open.get(Objects.requireNonNull(name, "pipeline"));
    if (pipeline == null) {
      throw new IllegalStateException(notOpen(name));
    }
    return pipeline;
  }
}
