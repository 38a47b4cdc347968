package io.holdfast.spark;

import java.util.ArrayList;
import java.util.Base64;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the driver of regional pipelines, which is written in Python, calls in its JVM. A pipeline has
 * a name and a folder of segments; while it is open its workers reach the driver.
 */
public final class RegionalBridge {
  private static final Logger LOG = LoggerFactory.getLogger(RegionalBridge.class);

  /** Executors that take longer miss a message; the next one tells them the same and more. */
  private static final long ANSWER_MS = 10_000;

  private RegionalBridge() {}

  /**
   * Opens a pipeline: workers may connect, and what they send waits for {@link #poll}.
   *
   * @param folder path or URI of the folder for segments, which no other open pipeline uses
   * @throws IllegalStateException if the pipeline is open, or another one has this folder
   * @throws IllegalArgumentException if the folder belongs to state stores
   */
  public static void open(String pipeline, String folder) {
    pipelines().open(pipeline, folder);
  }

  /**
   * Closes a pipeline: its workers are refused from now on, messages that wait are dropped, and
   * executors seal their files. Closing one that is not open does nothing.
   */
  public static void close(String pipeline) {
    StateFolder folder = pipelines().close(pipeline);
    if (folder != null) {
      ask(RegionalManagers.CLOSE, folder, "");
    }
  }

  /**
   * Returns the next message that a worker sent, or null if none came in time or {@link #wake} was
   * called.
   *
   * @throws IllegalStateException if the pipeline is not open, or is closed meanwhile
   */
  public static byte[] poll(String pipeline, long timeoutMs) {
    return pipelines().poll(pipeline, timeoutMs);
  }

  /**
   * Lets a {@link #poll} that waits, or else the next one, return without a message: there is
   * something to see to besides messages. Nothing happens if the pipeline is not open.
   */
  public static void wake(String pipeline) {
    pipelines().wake(pipeline);
  }

  /**
   * Sets what workers that ask are answered from now on: everything they may need to know, not a
   * change of it. Before the first call they are answered nothing.
   *
   * @throws IllegalStateException if the pipeline is not open
   */
  public static void respond(String pipeline, byte[] answer) {
    pipelines().respond(pipeline, answer);
  }

  /**
   * Tells the managers of a folder about a checkpoint, on all executors that are known to live. Best
   * effort.
   *
   * @param message encoded by {@code holdfast._core.manager_message}
   * @return how many carried it out
   */
  public static int tellManagers(String folder, byte[] message) {
    String text = Base64.getEncoder().encodeToString(message);
    return ask(RegionalManagers.TELL, pipelines().folder(folder), text).size();
  }

  /**
   * Returns a row per executor that has a manager of this folder and answers: id of the executor,
   * term, number of physical files, their bytes, live bytes, bytes of files that only owners who fell
   * back keep alive, number of live segments.
   */
  public static String[][] managerStats(String folder) {
    List<String[]> rows = new ArrayList<>();
    ask(RegionalManagers.STATS, pipelines().folder(folder), "")
        .forEach(
            (executor, reply) -> {
              String[] row = reply.clone();
              row[0] = executor;
              rows.add(row);
            });
    return rows.toArray(String[][]::new);
  }

  /** Returns the terms of managers of this folder whose executors are not known to be gone. */
  public static long[] liveTerms(String folder) {
    return HoldfastPlugin.driver().writers(pipelines().folder(folder).name).keySet().stream()
        .mapToLong(Long::longValue)
        .sorted()
        .toArray();
  }

  /** Returns the newest term that this application gave to a manager of this folder; 0 if none. */
  public static long newestTerm(String folder) {
    return HoldfastPlugin.driver().newestGiven(pipelines().folder(folder).name);
  }

  private static RegionalPipelines pipelines() {
    return HoldfastPlugin.driver().regionalPipelines();
  }

  /** Asks all executors at once; returns the answers of those that did what they were asked. */
  private static Map<String, String[]> ask(String tag, StateFolder folder, String argument) {
    Map<String, CompletableFuture<String[]>> asked = new LinkedHashMap<>();
    HoldfastPlugin.driver()
        .writers(folder.name)
        .forEach(
            (term, writer) -> {
              String[] wire = {tag, folder.name, Long.toString(term), argument};
              asked.put(writer.executorId() + "/" + term, writer.link().ask(wire));
            });
    long deadline = System.nanoTime() + TimeUnit.MILLISECONDS.toNanos(ANSWER_MS);
    Map<String, String[]> answers = new LinkedHashMap<>();
    asked.forEach(
        (executor, reply) -> {
          String[] answer = answer(executor, reply, deadline - System.nanoTime());
          if (answer != null) {
            answers.put(executor.substring(0, executor.lastIndexOf('/')), answer);
          }
        });
    return answers;
  }

  /** The answer of an executor; null when it has none, or could not do it. */
  private static String[] answer(
      String executor, CompletableFuture<String[]> reply, long nanosLeft) {
    try {
      String[] answer = reply.get(Math.max(0, nanosLeft), TimeUnit.NANOSECONDS);
      if (answer[0].equals(RegionalManagers.FAILED)) {
        LOG.warn("Executor {} could not do what it was told: {}", executor, answer[1]);
      }
      return answer[0].equals(RegionalManagers.DONE) ? answer : null;
    } catch (ExecutionException | TimeoutException e) {
      LOG.warn("Executor {} did not answer", executor, e);
      return null;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      return null;
    }
  }
}
