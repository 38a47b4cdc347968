package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.copies.GatheredCopies;
import io.holdfast.spark.merged.FileEnd;
import io.holdfast.spark.merged.FileId;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
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
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Has executors make their files of a batch durable before it commits, or fails the batch. */
final class Durability {
  private static final Logger LOG = LoggerFactory.getLogger(Durability.class);

  /** Requests of a second that an object store takes in a folder. */
  private static final int REQUESTS_PER_S = 3_500;

  /** So many requests in one moment are no burst. */
  private static final int FEW_REQUESTS = 50;

  private static final class Folder {
    /** By file, the executor that could not sync it. A later sync may succeed without the bytes. */
    final Map<FileId, String> lost = new ConcurrentHashMap<>();

    /** Facts about the files that were finished for a batch. */
    final List<byte[]> finished = new ArrayList<>();

    /** Durable bytes of each file that the last committed batch refers to. */
    Map<FileId, Long> durableBytes = new HashMap<>();
  }

  /** A request to make files of one executor durable. */
  private record Request(
      Terms.Writer writer, List<FileFacts> files, CompletableFuture<ExecutorReply> reply) {
    void answered(FileFacts.Writer answer, String text, Throwable failure) {
      files.forEach(file -> file.answered(answer, text, failure));
    }
  }

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

  /** The time over which so many executors spread their requests. */
  static int spreadMs(int executors) {
    return executors <= FEW_REQUESTS ? 0 : executors * 1000 / REQUESTS_PER_S;
  }

  /**
   * Makes everything that a batch refers to survive a machine crash. Returns facts about files that
   * were finished for it, for {@code Native.learnFiles}.
   *
   * @throws InterruptedIOException if the query is stopped during the call
   */
  List<byte[]> makeDurable(SegmentFolder where, String[] ids) throws IOException {
    Folder folder = of(where.name);
    List<byte[]> finished;
    synchronized (folder) {
      Map<FileId, Long> durable = new HashMap<>();
      List<FileFacts> fresh = new ArrayList<>();
      for (FileEnd referenced : Native.referencedEnds(ids)) {
        FileId file = referenced.file();
        long before = folder.durableBytes.getOrDefault(file, 0L);
        if (referenced.end() > before) {
          fresh.add(new FileFacts(file, referenced.end()));
        }
        durable.put(file, Math.max(before, referenced.end()));
      }
      askWriters(where, folder, fresh);
      for (FileFacts file : fresh) {
        finish(where, folder, file);
      }
      folder.durableBytes = durable;
      finished = List.copyOf(folder.finished);
      folder.finished.clear();
    }
    Set<Long> gone = terms.takeGone(where.name);
    if (!gone.isEmpty()) {
      GatheredCopies.remove(where.name, gone);
    }
    return finished;
  }

  /** Asks all writers at once. */
  private void askWriters(SegmentFolder where, Folder folder, List<FileFacts> fresh)
      throws IOException {
    Map<Long, List<FileFacts>> byTerm = new LinkedHashMap<>();
    for (FileFacts file : fresh) {
      if (next(folder, file) == FileFacts.Step.ASK) {
        byTerm.computeIfAbsent(file.file.term(), key -> new ArrayList<>()).add(file);
      } else {
        finish(where, folder, file); // refuses it, before any writer works
      }
    }
    int spreadMs = where.hidesOpenFiles() ? spreadMs(byTerm.size()) : 0;
    List<Request> requests = new ArrayList<>();
    byTerm.forEach(
        (term, written) -> {
          Terms.Writer writer = terms.writerOf(where.name, term);
          if (writer == null) {
            written.forEach(
                file -> file.answered(FileFacts.Writer.GONE, "its executor was lost", null));
          } else {
            long[] numbers = written.stream().mapToLong(file -> file.file.number()).toArray();
            ExecutorRequest sync =
                new ExecutorRequest.SyncFiles(where.name, term, numbers, spreadMs);
            requests.add(new Request(writer, written, writer.link().ask(sync)));
          }
        });
    for (Request request : requests) {
      await(where, folder, request);
    }
  }

  private static FileFacts.Step next(Folder folder, FileFacts file) {
    return file.next(folder.lost.containsKey(file.file));
  }

  /** Waits for the answer of a writer. */
  private static void await(SegmentFolder where, Folder folder, Request request)
      throws IOException {
    Terms.Writer writer = request.writer();
    try {
      ExecutorReply reply = request.reply().get();
      switch (reply.outcome()) {
        case DONE -> {
          request.answered(FileFacts.Writer.DONE, "", null);
          folder.finished.add(reply.files());
        }
        case CLOSED -> request.answered(FileFacts.Writer.GONE, writer + " closed it", null);
        case FAILED ->
            request.answered(FileFacts.Writer.FAILED, writer + ": " + reply.error(), null);
      }
    } catch (ExecutionException e) {
      Throwable cause = e.getCause();
      if (cause instanceof TimeoutException || cause instanceof HoldfastException) {
        // It may be alive, or its reply is unreadable.
        request.answered(FileFacts.Writer.SILENT, writer + " does not answer", cause);
      } else {
        List<FileId> files = request.files().stream().map(file -> file.file).toList();
        LOG.warn("{}, which wrote {} in {}, is gone", writer, files, where.name, cause);
        request.answered(FileFacts.Writer.GONE, writer + " was lost", null);
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      // Spark recognises a stopped query by this class.
      throw (IOException)
          new InterruptedIOException("Interrupted while waiting for " + writer).initCause(e);
    }
  }

  /** Takes steps until the file is durable. */
  private static void finish(SegmentFolder where, Folder folder, FileFacts file) {
    while (true) {
      switch (next(folder, file)) {
        case LOOK -> file.look(where);
        case GATHER -> file.gather(where);
        case COMPLETE -> {
          LOG.warn("{} in {} is made from copies, because {}", file.file, where.name, file.said);
          folder.finished.add(file.complete(where));
        }
        case DONE -> {
          return;
        }
        case LOST ->
            throw failed(
                where, file, "a sync failed on executor " + folder.lost.get(file.file), null);
        case INCOMPLETE -> {
          String why = file.said + " before the file was complete: " + file.found();
          throw failed(where, file, why, null);
        }
        case WRITER_FAILED, WRITER_SILENT -> throw failed(where, file, file.said, file.cause);
        case ASK -> throw new IllegalStateException("no writer was asked for " + file.file);
      }
    }
  }

  private static HoldfastException failed(
      SegmentFolder where, FileFacts file, String why, Throwable cause) {
    return new HoldfastException(
        String.format(
            "The batch was not committed: physical files in %s could not be made durable: %s up to"
                + " offset %d (%s). %s",
            where.name, file.file, file.end, why, whatToDo(where)),
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
      FileId file = referenced.file();
      long bytes = Native.lookAtFile(where.name, where.files(), file.term(), file.number());
      // HDFS learns the length of an open file late.
      boolean whole = where.isLocal() ? bytes >= referenced.end() : bytes > 0;
      if (!whole) {
        gone.add(referenced.file().toString());
      }
    }
    return String.join(", ", gone);
  }
}
