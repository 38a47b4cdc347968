package io.holdfast.spark;

import io.holdfast.spark.driver.HoldfastDriver;
import io.holdfast.spark.driver.RegionalPipelines;
import io.holdfast.spark.driver.Terms;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import java.util.ArrayList;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import java.util.function.LongFunction;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The calls of the regional pipelines' driver in Python into its JVM. A pipeline has a name and a
 * folder of segments. While it is open, its workers reach the driver.
 */
public final class RegionalBridge {
  private static final Logger LOG = LoggerFactory.getLogger(RegionalBridge.class);

  /** Slower executors miss a message. The next message tells them the same and more. */
  private static final long ANSWER_MS = 10_000;

  private RegionalBridge() {}

  /**
   * Opens a pipeline: workers may connect, and their messages wait for {@link #poll}.
   *
   * @param folder path or URI of the folder for segments, which no other open pipeline uses
   * @throws IllegalStateException if the pipeline is open, or another one has this folder
   * @throws IllegalArgumentException if the folder belongs to state stores
   */
  public static void open(String pipeline, String folder) {
    pipelines().open(pipeline, folder);
  }

  /**
   * Closes a pipeline if it is open: refuses its workers from now on, drops messages that wait, and
   * has executors seal their files.
   */
  public static void close(String pipeline) {
    SegmentFolder folder = pipelines().close(pipeline);
    if (folder != null) {
      ask(folder, term -> new ExecutorRequest.CloseManager(folder.name, term));
    }
  }

  /**
   * Returns messages of workers in their order, or null if none came in time or {@link #wake} was
   * called. A call returns all messages that wait: a call from Python with a result between about 6
   * and 60 KB takes 40 ms, as both ends of its connection wait (Nagle's algorithm, delayed
   * acknowledgements).
   *
   * @return before each message its length, 4 bytes, little-endian
   * @throws IllegalStateException if the pipeline is not open, or is closed meanwhile
   */
  public static byte[] poll(String pipeline, long timeoutMs) {
    return pipelines().poll(pipeline, timeoutMs);
  }

  /**
   * Lets a {@link #poll} that waits, or else the next one, return without a message, because the
   * driver has other work. Does nothing if the pipeline is not open.
   */
  public static void wake(String pipeline) {
    pipelines().wake(pipeline);
  }

  /**
   * Tells the managers of a folder about a checkpoint, on all executors that are known to live.
   *
   * @param message encoded by {@code holdfast._core.manager_message}
   * @return how many managers carried it out
   */
  public static int tellManagers(String folder, byte[] message) {
    SegmentFolder where = pipelines().folder(folder);
    return ask(where, term -> new ExecutorRequest.TellManager(where.name, term, message));
  }

  /**
   * Shows figures of a pipeline in Spark's metrics system, beside earlier figures of this run.
   *
   * @param lines for each figure a line: its name, with dots between levels, a space, its value
   */
  public static void showMetrics(String pipeline, String lines) {
    HoldfastDriver.running().regionalMetrics().show(pipeline, lines);
  }

  /**
   * Shows the end of an attempt in Spark's UI, and in the event log.
   *
   * @param line of the history
   */
  public static void attemptEnded(String pipeline, String line) {
    pipelines().attemptEnded(pipeline, line);
  }

  /** Returns the terms of managers of this folder whose executors are not known to be gone. */
  public static long[] liveTerms(String folder) {
    return HoldfastDriver.running().terms().live(pipelines().folder(folder).name);
  }

  /**
   * Returns the newest term that this application gave to a manager of this folder; 0 without one.
   */
  public static long newestTerm(String folder) {
    return HoldfastDriver.running().terms().newest(pipelines().folder(folder).name);
  }

  /**
   * Begins the clean-up of files of a pipeline's managers whose executors are gone. The terms of
   * all files in the folder count as known.
   *
   * @param segmentsFolder folder of the physical files
   * @param metadataFolder folder of the checkpoints' metadata
   * @return a handle for {@link #reclaimOrphans}
   */
  public static long openOrphans(String segmentsFolder, String metadataFolder, String pipeline) {
    SegmentFolder segments = pipelines().folder(segmentsFolder);
    SegmentFolder metadata = pipelines().folder(metadataFolder);
    return Native.openOrphans(
        segments.name, segments.files(), metadata.name, metadata.files(), pipeline);
  }

  /**
   * Deletes files of managers that are gone, if no retained checkpoint needs them. No attempt may
   * be under way.
   *
   * @param retainedIds all retained checkpoints; reads the metadata of each once
   * @param liveTerms see {@link #liveTerms}: their files are left alone
   * @param newestTerm see {@link #newestTerm}; asked for before {@code liveTerms}
   * @return the work done, for the log, empty if there was none; then the names of files that waste
   *     too much, see {@link #nameWasteful}
   * @throws FencedException if a file has a newer term, because another application writes to the
   *     folder. This exception and the next two come before any file is deleted.
   * @throws MissingStateException if segments or metadata that are needed are missing
   * @throws IllegalArgumentException if a checkpoint gives an owner two origins, or a newer origin
   *     than itself
   * @throws HoldfastException if the folder cannot be listed
   */
  public static String[] reclaimOrphans(
      long orphans,
      List<? extends Number> retainedIds,
      List<? extends Number> liveTerms,
      long newestTerm) {
    return Native.reclaimOrphans(orphans, longs(retainedIds), longs(liveTerms), newestTerm);
  }

  /**
   * Names files of ended managers. Managers that begin from now on have segments in them written
   * again.
   *
   * @param files a line for each
   */
  public static void nameWasteful(String pipeline, String files) {
    pipelines().nameWasteful(pipeline, files);
  }

  /** Ends a clean-up. A second call does nothing. */
  public static void closeOrphans(long orphans) {
    Native.closeOrphans(orphans);
  }

  /** Converts numbers from Python: small ones are Integers, others Longs. */
  private static long[] longs(List<? extends Number> numbers) {
    return numbers.stream().mapToLong(Number::longValue).toArray();
  }

  private static RegionalPipelines pipelines() {
    return HoldfastDriver.running().regionalPipelines();
  }

  /** A request that was sent to a writer. */
  private record Asked(Terms.Writer writer, CompletableFuture<ExecutorReply> reply) {}

  /**
   * Asks all managers of a folder at once.
   *
   * @param request for the manager of a term
   * @return how many managers did it
   */
  private static int ask(SegmentFolder folder, LongFunction<ExecutorRequest> request) {
    List<Asked> all = new ArrayList<>();
    HoldfastDriver.running()
        .terms()
        .writers(folder.name)
        .forEach(
            (term, writer) ->
                all.add(new Asked(writer, writer.link().ask(request.apply(term)))));
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ANSWER_MS);
    int done = 0;
    for (Asked asked : all) {
      done += isDone(asked, deadline - System.nanoTime()) ? 1 : 0;
    }
    return done;
  }

  /** Waits for the answer; returns whether the manager did it. */
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
