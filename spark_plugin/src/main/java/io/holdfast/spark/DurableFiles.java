package io.holdfast.spark;

import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeoutException;
import java.util.function.LongFunction;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * What the driver knows about the durability of state files, by folder. Before a batch commits it
 * has the executors make the files of the batch durable, and fails the batch if one cannot.
 */
final class DurableFiles {
  private static final Logger LOG = LoggerFactory.getLogger(DurableFiles.class);

  private static final class Folder {
    /** Files an executor failed to sync: a later sync may succeed although bytes are gone. */
    final Set<String> lost = ConcurrentHashMap.newKeySet();

    /** For the files that the last committed batch refers to: bytes known to be durable. */
    Map<String, Long> durableBytes = new HashMap<>();
  }

  private final Map<String, Folder> folders = new ConcurrentHashMap<>();

  private Folder of(String dir) {
    return folders.computeIfAbsent(dir, key -> new Folder());
  }

  void lost(LostFiles message) {
    of(message.dir).lost.addAll(Set.of(message.names));
  }

  /**
   * Makes everything that the ids of a batch refer to survive a machine crash.
   *
   * @param executors the executor of a term; null when it is gone
   */
  void makeDurable(StateFolder where, String[] ids, LongFunction<ExecutorLink> executors) {
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
      Map<String, Long> orphans = askWriters(where, fresh, executors);
      // A writer that is gone may have reported a failure in the meantime.
      refuseLost(where, folder, orphans);
      orphans.forEach((file, end) -> adopt(where, file, end));
      folder.durableBytes = durable;
    }
  }

  private static void refuseLost(StateFolder where, Folder folder, Map<String, Long> files) {
    for (Map.Entry<String, Long> file : files.entrySet()) {
      if (folder.lost.contains(file.getKey())) {
        throw failed(where, file.getKey(), file.getValue(), "a sync failed on its executor", null);
      }
    }
  }

  /** Asks all at once; returns the files, with their ends, whose writers are gone. */
  private static Map<String, Long> askWriters(
      StateFolder where, Map<String, Long> files, LongFunction<ExecutorLink> executors) {
    Map<Long, List<String>> byTerm = new LinkedHashMap<>();
    files
        .keySet()
        .forEach(file -> byTerm.computeIfAbsent(termOf(file), key -> new ArrayList<>()).add(file));
    Map<String, Long> orphans = new LinkedHashMap<>();
    Map<List<String>, CompletableFuture<SyncReply>> replies = new LinkedHashMap<>();
    byTerm.forEach(
        (term, names) -> {
          ExecutorLink executor = executors.apply(term);
          if (executor == null) {
            names.forEach(name -> orphans.put(name, files.get(name)));
          } else {
            replies.put(names, executor.ask(new SyncRequest(where.name, term, names)));
          }
        });
    replies.forEach(
        (names, reply) -> {
          if (!isDurable(where, names, files, reply)) {
            names.forEach(name -> orphans.put(name, files.get(name)));
          }
        });
    return orphans;
  }

  private static boolean isDurable(
      StateFolder where,
      List<String> names,
      Map<String, Long> files,
      CompletableFuture<SyncReply> asked) {
    String first = names.get(0);
    try {
      SyncReply reply = asked.get();
      if (reply.outcome == SyncReply.Outcome.FAILED) {
        throw failed(where, first, files.get(first), reply.error, null);
      }
      return reply.outcome == SyncReply.Outcome.DURABLE;
    } catch (ExecutionException e) {
      if (e.getCause() instanceof TimeoutException) {
        // It may be alive, and then only it knows whether its bytes are safe.
        throw failed(where, first, files.get(first), "its executor does not answer", e.getCause());
      }
      LOG.warn("The executor that wrote {} in {} is gone", names, where.name, e.getCause());
      return false;
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw failed(where, first, files.get(first), "interrupted while waiting for it", e);
    }
  }

  /** What a dead executor left is good if all of it is there. */
  private static void adopt(StateFolder where, String file, long end) {
    try {
      Native.adoptFile(where.name, where.files(), file, end);
    } catch (DamagedStateException e) {
      throw failed(
          where,
          file,
          end,
          "its executor was lost before the file was complete: " + e.getMessage(),
          e);
    }
  }

  private static HoldfastException failed(
      StateFolder where, String file, long end, String why, Throwable cause) {
    return new HoldfastException(
        "The batch was not committed: state file "
            + where.name
            + "/"
            + file
            + " could not be made durable up to offset "
            + end
            + " ("
            + why
            + "). Nothing is lost: check the storage and restart the query, and Spark replays the"
            + " batch into a new file.",
        cause);
  }

  /** A file is named by its term, 16 hexadecimal digits, and a number. */
  private static long termOf(String file) {
    return Long.parseUnsignedLong(file.substring(0, 16), 16);
  }
}
