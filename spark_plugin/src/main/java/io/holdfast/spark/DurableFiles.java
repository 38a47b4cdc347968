package io.holdfast.spark;

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
import java.util.function.LongFunction;
import java.util.stream.Collectors;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the driver knows about the durability of state files, by folder. Before a batch commits it
 * has the executors make the files of the batch durable, and fails the batch if one cannot.
 */
final class DurableFiles {
  private static final Logger LOG = LoggerFactory.getLogger(DurableFiles.class);

  private static final class Folder {
    /**
     * Files that an executor failed to sync, with its id: a later sync may succeed although bytes are
     * gone.
     */
    final Map<String, String> lost = new ConcurrentHashMap<>();

    /** For the files that the last committed batch refers to: bytes known to be durable. */
    Map<String, Long> durableBytes = new HashMap<>();
  }

  /** The executor of a term, as long as it is not known to be gone. */
  record Writer(String executorId, ExecutorLink link) {
    @Override
    public String toString() {
      return "executor " + executorId;
    }
  }

  /** Files of one executor, and what became of the request to make them durable. */
  private record Request(
      Writer writer, Map<String, Long> files, CompletableFuture<SyncReply> reply) {}

  /**
   * A file that its writer does not answer for any more.
   *
   * @param why what became of the writer
   */
  private record Orphan(long end, String why) {}

  private final Map<String, Folder> folders = new ConcurrentHashMap<>();

  private Folder of(String dir) {
    return folders.computeIfAbsent(dir, key -> new Folder());
  }

  void lost(LostFiles message) {
    Folder folder = of(message.dir);
    for (String name : message.names) {
      folder.lost.put(name, message.executorId);
    }
  }

  /**
   * Makes everything that the ids of a batch refer to survive a machine crash.
   *
   * @param writers the writer of a term; null when it is gone
   * @throws InterruptedIOException if the query is stopped meanwhile
   */
  void makeDurable(StateFolder where, String[] ids, LongFunction<Writer> writers)
      throws IOException {
    Folder folder = of(where.name);
    synchronized (folder) {
      Map<String, Long> durable = new HashMap<>();
      Map<String, Long> fresh = new LinkedHashMap<>();
      for (String line : Native.referencedEnds(ids).lines().toList()) {
        int space = line.indexOf(' ');
        String file = line.substring(0, space);
        long end = Long.parseLong(line.substring(space + 1));
        long before = folder.durableBytes.getOrDefault(file, 0L);
        if (end > before) {
          fresh.put(file, end);
        }
        durable.put(file, Math.max(before, end));
      }
      refuseLost(where, folder, fresh);
      Map<String, Orphan> orphans = askWriters(where, fresh, writers);
      // A writer that is gone may have reported a failure in the meantime.
      refuseLost(where, folder, fresh);
      orphans.forEach((file, orphan) -> adopt(where, file, orphan));
      folder.durableBytes = durable;
    }
  }

  private static void refuseLost(StateFolder where, Folder folder, Map<String, Long> files) {
    Map<String, Long> lost = new LinkedHashMap<>(files);
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
  private static Map<String, Orphan> askWriters(
      StateFolder where, Map<String, Long> files, LongFunction<Writer> writers)
      throws IOException {
    Map<Long, Map<String, Long>> byTerm = new LinkedHashMap<>();
    files.forEach(
        (file, end) ->
            byTerm.computeIfAbsent(termOf(file), key -> new LinkedHashMap<>()).put(file, end));
    Map<String, Orphan> orphans = new LinkedHashMap<>();
    List<Request> requests = new ArrayList<>();
    byTerm.forEach(
        (term, written) -> {
          Writer writer = writers.apply(term);
          if (writer == null) {
            leave(orphans, written, "its executor was lost");
          } else {
            List<String> names = List.copyOf(written.keySet());
            SyncRequest request = new SyncRequest(where.name, term, names);
            requests.add(new Request(writer, written, writer.link().ask(request)));
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

  private static void leave(Map<String, Orphan> orphans, Map<String, Long> files, String why) {
    files.forEach((file, end) -> orphans.put(file, new Orphan(end, why)));
  }

  /** Waits for the answer; null if the files are durable, else why nobody answers for them. */
  private static String whyGone(StateFolder where, Request request) throws IOException {
    Writer writer = request.writer();
    try {
      SyncReply reply = request.reply().get();
      switch (reply.outcome) {
        case DURABLE:
          return null;
        case CLOSED:
          return writer + " closed it";
        default:
          throw failed(where, request.files(), writer + ": " + reply.error, null);
      }
    } catch (ExecutionException e) {
      if (e.getCause() instanceof TimeoutException) {
        // It may be alive, and then only it knows whether its bytes are safe.
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
  private static void adopt(StateFolder where, String file, Orphan orphan) {
    try {
      Native.adoptFile(where.name, where.files(), file, orphan.end());
    } catch (DamagedStateException e) {
      throw failed(
          where,
          Map.of(file, orphan.end()),
          orphan.why() + " before the file was complete: " + e.getMessage(),
          e);
    }
  }

  private static HoldfastException failed(
      StateFolder where, Map<String, Long> files, String why, Throwable cause) {
    String ends =
        files.entrySet().stream()
            .map(file -> file.getKey() + " up to offset " + file.getValue())
            .collect(Collectors.joining(", "));
    return new HoldfastException(
        "The batch was not committed: state files in "
            + where.name
            + " could not be made durable: "
            + ends
            + " ("
            + why
            + "). Nothing is lost: check the executor and the storage and restart the query, and"
            + " Spark replays the batch into new files.",
        cause);
  }

  /** A file is named by its term, 16 hexadecimal digits, and a number. */
  private static long termOf(String file) {
    return Long.parseUnsignedLong(file.substring(0, 16), 16);
  }
}
