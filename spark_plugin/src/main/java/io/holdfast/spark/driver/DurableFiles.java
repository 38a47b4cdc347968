package io.holdfast.spark.driver;

import io.holdfast.spark.DamagedStateException;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.files.FileEnd;
import io.holdfast.spark.files.FileId;
import io.holdfast.spark.files.SegmentFolder;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.rpc.LostFiles;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the driver knows about the durability of physical files, by folder. Before a batch commits it
 * has the executors make the files of the batch durable, and fails the batch if one cannot.
 */
final class DurableFiles {
  private static final Logger LOG = LoggerFactory.getLogger(DurableFiles.class);

  private static final class Folder {
    /**
     * Files that an executor failed to sync, with its id: a later sync may succeed although bytes are
     * gone.
     */
    final Map<FileId, String> lost = new ConcurrentHashMap<>();

    /** For the files that the last committed batch refers to: bytes known to be durable. */
    Map<FileId, Long> durableBytes = new HashMap<>();
  }

  /** Files of one executor with their ends, and what became of the request to make them durable. */
  private record Request(
      Terms.Writer writer, Map<FileId, Long> files, CompletableFuture<ExecutorReply> reply) {}

  /**
   * A file that its writer does not answer for any more.
   *
   * @param why what became of the writer
   */
  private record Orphan(long end, String why) {}

  private final Map<String, Folder> folders = new ConcurrentHashMap<>();
  private final Terms terms;

  DurableFiles(Terms terms) {
    this.terms = terms;
  }

  private Folder of(String dir) {
    return folders.computeIfAbsent(dir, key -> new Folder());
  }

  void lost(LostFiles message) {
    Folder folder = of(message.dir());
    for (FileId file : message.files()) {
      folder.lost.put(file, message.executorId());
    }
  }

  /**
   * Makes everything that the ids of a batch refer to survive a machine crash.
   *
   * @throws InterruptedIOException if the query is stopped meanwhile
   */
  void makeDurable(SegmentFolder where, String[] ids) throws IOException {
    Folder folder = of(where.name);
    synchronized (folder) {
      Map<FileId, Long> durable = new HashMap<>();
      Map<FileId, Long> fresh = new LinkedHashMap<>();
      for (FileEnd referenced : Native.referencedEnds(ids)) {
        FileId file = referenced.file();
        long before = folder.durableBytes.getOrDefault(file, 0L);
        if (referenced.end() > before) {
          fresh.put(file, referenced.end());
        }
        durable.put(file, Math.max(before, referenced.end()));
      }
      refuseLost(where, folder, fresh);
      Map<FileId, Orphan> orphans = askWriters(where, fresh);
      // A writer that is gone may have reported a failure in the meantime.
      refuseLost(where, folder, fresh);
      orphans.forEach((file, orphan) -> adopt(where, file, orphan));
      folder.durableBytes = durable;
    }
  }

  private static void refuseLost(SegmentFolder where, Folder folder, Map<FileId, Long> files) {
    Map<FileId, Long> lost = new LinkedHashMap<>(files);
    lost.keySet().retainAll(folder.lost.keySet());
    if (!lost.isEmpty()) {
      String executors =
          lost.keySet().stream()
              .map(file -> "executor " + folder.lost.get(file))
              .distinct()
              .collect(Collectors.joining(", "));
      throw failed(where, lost, "a sync failed on " + executors, null);
    }
  }

  /** Asks all at once; returns the files whose writers are gone. */
  private Map<FileId, Orphan> askWriters(SegmentFolder where, Map<FileId, Long> files)
      throws IOException {
    Map<Long, Map<FileId, Long>> byTerm = new LinkedHashMap<>();
    files.forEach(
        (file, end) ->
            byTerm.computeIfAbsent(file.term(), key -> new LinkedHashMap<>()).put(file, end));
    Map<FileId, Orphan> orphans = new LinkedHashMap<>();
    List<Request> requests = new ArrayList<>();
    byTerm.forEach(
        (term, written) -> {
          Terms.Writer writer = terms.writerOf(where.name, term);
          if (writer == null) {
            leave(orphans, written, "its executor was lost");
          } else {
            long[] numbers = written.keySet().stream().mapToLong(FileId::number).toArray();
            ExecutorRequest sync = new ExecutorRequest.SyncFiles(where.name, term, numbers);
            requests.add(new Request(writer, written, writer.link().ask(sync)));
          }
        });
    for (Request request : requests) {
      String gone = whyGone(where, request);
      if (gone != null) {
        leave(orphans, request.files(), gone);
      }
    }
    return orphans;
  }

  private static void leave(Map<FileId, Orphan> orphans, Map<FileId, Long> files, String why) {
    files.forEach((file, end) -> orphans.put(file, new Orphan(end, why)));
  }

  /** Waits for the answer; null if the files are durable, else why no writer answers for them. */
  private static String whyGone(SegmentFolder where, Request request) throws IOException {
    Terms.Writer writer = request.writer();
    try {
      ExecutorReply reply = request.reply().get();
      switch (reply.outcome()) {
        case DONE:
          return null;
        case CLOSED:
          return writer + " closed it";
        default:
          throw failed(where, request.files(), writer + ": " + reply.error(), null);
      }
    } catch (ExecutionException e) {
      if (e.getCause() instanceof TimeoutException || e.getCause() instanceof HoldfastException) {
        // The writer may be alive, or its reply cannot be read: only the writer knows whether its
        // bytes are safe.
        throw failed(where, request.files(), writer + " does not answer", e.getCause());
      }
      LOG.warn(
          "{}, which wrote {} in {}, is gone",
          writer,
          request.files().keySet(),
          where.name,
          e.getCause());
      return writer + " was lost";
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      // Spark takes this kind of exception for the end of a query that is stopped.
      throw (IOException)
          new InterruptedIOException("Interrupted while waiting for " + writer).initCause(e);
    }
  }

  /** What a writer left is good if all of it is there. */
  private static void adopt(SegmentFolder where, FileId file, Orphan orphan) {
    try {
      Native.adoptFile(
          where.name, where.files(), file.term(), file.number(), orphan.end());
    } catch (DamagedStateException e) {
      throw failed(
          where,
          Map.of(file, orphan.end()),
          orphan.why() + " before the file was complete: " + e.getMessage(),
          e);
    }
  }

  private static HoldfastException failed(
      SegmentFolder where, Map<FileId, Long> files, String why, Throwable cause) {
    String ends =
        files.entrySet().stream()
            .map(file -> file.getKey() + " up to offset " + file.getValue())
            .collect(Collectors.joining(", "));
    return new HoldfastException(
        "The batch was not committed: physical files in "
            + where.name
            + " could not be made durable: "
            + ends
            + " ("
            + why
            + "). Nothing is lost: check the executor and the storage and restart the query, and"
            + " Spark replays the batch into new files.",
        cause);
  }
}
