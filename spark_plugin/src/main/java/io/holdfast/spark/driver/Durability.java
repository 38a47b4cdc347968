package io.holdfast.spark.driver;

import io.holdfast.spark.DamagedStateException;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.merged.FileEnd;
import io.holdfast.spark.merged.FileId;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.sparklog.CommitLog;
import java.io.IOException;
import java.io.InterruptedIOException;
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
import java.util.stream.Collectors;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Has executors make their files of a batch durable before it commits, or fails the batch. */
final class Durability {
  private static final Logger LOG = LoggerFactory.getLogger(Durability.class);

  private static final class Folder {
    /** By file, the executor that could not sync it. A later sync may succeed without the bytes. */
    final Map<FileId, String> lost = new ConcurrentHashMap<>();

    /** Durable bytes of each file that the last committed batch refers to. */
    Map<FileId, Long> durableBytes = new HashMap<>();
  }

  /** A request to make files of one executor durable, up to their ends. */
  private record Request(
      Terms.Writer writer, Map<FileId, Long> files, CompletableFuture<ExecutorReply> reply) {}

  /** A file without a writer that could make it durable, and why. */
  private record Orphan(long end, String why) {}

  private final Map<String, Folder> folders = new ConcurrentHashMap<>();
  private final Terms terms;

  Durability(Terms terms) {
    this.terms = terms;
  }

  private Folder of(String dir) {
    return folders.computeIfAbsent(dir, key -> new Folder());
  }

  void lost(DriverRequest.LostFiles message) {
    Folder folder = of(message.dir());
    for (FileId file : message.files()) {
      folder.lost.put(file, message.executorId());
    }
  }

  /**
   * Makes everything that a batch refers to survive a machine crash.
   *
   * @throws InterruptedIOException if the query is stopped during the call
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
      // A writer that is gone may have reported a failure during the call.
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

  /** Asks all writers at once; returns the files whose writers are gone. */
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

  /** Returns null if the files are durable, else why no writer answers for them. */
  private static String whyGone(SegmentFolder where, Request request) throws IOException {
    Terms.Writer writer = request.writer();
    try {
      ExecutorReply reply = request.reply().get();
      return switch (reply.outcome()) {
        case DONE -> null;
        case CLOSED -> writer + " closed it";
        case FAILED -> throw failed(where, request.files(), writer + ": " + reply.error(), null);
      };
    } catch (ExecutionException e) {
      if (e.getCause() instanceof TimeoutException || e.getCause() instanceof HoldfastException) {
        // It may be alive, or its reply unreadable: only the writer knows if its bytes are safe.
        throw failed(where, request.files(), writer + " does not answer", e.getCause());
      }
      Set<FileId> files = request.files().keySet();
      LOG.warn("{}, which wrote {} in {}, is gone", writer, files, where.name, e.getCause());
      return writer + " was lost";
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      // Spark recognises a stopped query by this class.
      throw (IOException)
          new InterruptedIOException("Interrupted while waiting for " + writer).initCause(e);
    }
  }

  /** Takes the file of a writer that is gone, if it is complete. */
  private static void adopt(SegmentFolder where, FileId file, Orphan orphan) {
    try {
      Native.adoptFile(where.name, where.files(), file.term(), file.number(), orphan.end());
    } catch (DamagedStateException e) {
      String why = orphan.why() + " before the file was complete: " + e.getMessage();
      throw failed(where, Map.of(file, orphan.end()), why, e);
    }
  }

  private static HoldfastException failed(
      SegmentFolder where, Map<FileId, Long> files, String why, Throwable cause) {
    String ends =
        files.entrySet().stream()
            .map(file -> file.getKey() + " up to offset " + file.getValue())
            .collect(Collectors.joining(", "));
    return new HoldfastException(
        String.format(
            "The batch was not committed: physical files in %s could not be made durable: %s (%s)."
                + " %s",
            where.name, ends, why, whatToDo(where)),
        cause);
  }

  /** Advice for the user. A replay needs the state of the last batch, which may be deleted. */
  private static String whatToDo(SegmentFolder where) {
    String gone;
    try {
      gone = goneOfLastBatch(where);
    } catch (IOException | RuntimeException e) {
      LOG.warn("Cannot see whether the state of the last batch is in {}", where.name, e);
      gone = "";
    }
    if (gone.isEmpty()) {
      return "Nothing is lost: check the executor and the storage and restart the query, and Spark"
          + " replays the batch into new files.";
    }
    return "State of the last committed batch is gone: "
        + gone
        + ". A restart alone cannot load it. See to it that nothing else deletes or changes files"
        + " in this folder. Put these files back from a copy and restart the query, or go back to an"
        + " intact batch if 'holdfast verify' finds one, or begin with a new checkpoint folder.";
  }

  /** Files that the newest entry of the commit log refers to and that are missing or cut. */
  private static String goneOfLastBatch(SegmentFolder where) throws IOException {
    Path newest = CommitLog.newest(where.path().getParent().getParent(), where.conf);
    if (newest == null) {
      return "";
    }
    String[] ids = CommitLog.neededIds(CommitLog.read(newest, where.conf));
    List<String> gone = new ArrayList<>();
    for (FileEnd referenced : Native.referencedEnds(ids)) {
      Path file = new Path(where.path(), referenced.file().toString());
      FileSystem fileSystem = file.getFileSystem(where.conf);
      // HDFS learns the length of an open file late.
      boolean whole =
          fileSystem.exists(file)
              && (!where.isLocal() || fileSystem.getFileStatus(file).getLen() >= referenced.end());
      if (!whole) {
        gone.add(referenced.file().toString());
      }
    }
    return String.join(", ", gone);
  }
}
