package io.holdfast.spark.files;

import io.holdfast.spark.DaemonThreads;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.util.functional.FutureIO;

/**
 * Output in two steps: a task stages a file, and once the checkpoint that holds its rows is complete
 * the driver publishes it under its final name, whole and at once.
 *
 * <p>Where files are renamed, the staged one is. An object store receives the final object as an upload
 * in parts that is completed when it is published; its staged object only says which upload that is.
 * A store without uploads in parts is given a copy.
 *
 * <p>A process that is killed between the beginning of an upload and its staged object leaves parts
 * that nothing knows of. The store's own rule for incomplete uploads removes them.
 */
public final class StagedOutput {
  private static final int THREADS = 16;

  private final ReachedFiles files;

  public StagedOutput(Configuration conf) {
    this(new ReachedFiles(conf));
  }

  public StagedOutput(ReachedFiles files) {
    this.files = files;
  }

  /**
   * Makes the content of a local file ready to be published. Durable on return, and not to be seen as
   * {@code target}. What fails leaves nothing.
   *
   * @param local path of the local file
   * @param staged URI that no other task uses
   * @param target URI that it will be published as
   */
  public void stage(String local, String staged, String target) throws IOException {
    FileErrors.explained(
        "cannot stage " + local + " as " + staged,
        () -> {
          stage(java.nio.file.Path.of(local), files.path(staged), files.path(target));
          return null;
        });
  }

  private void stage(java.nio.file.Path local, Path staged, Path target) throws IOException {
    FileSystem fileSystem = files.fileSystem(staged);
    AtomicFiles atomic = files.at(staged);
    if (!files.isObjectStore(staged) || !PendingUpload.serves(fileSystem, target)) {
      atomic.writeOwn(staged, AtomicFiles.contentOf(local));
      return;
    }
    PendingUpload upload = PendingUpload.of(local, fileSystem, target);
    try {
      byte[] json = upload.toJson();
      atomic.writeOwn(staged, out -> out.write(json));
    } catch (IOException | RuntimeException e) {
      try {
        upload.abort(fileSystem);
      } catch (IOException | RuntimeException suppressed) {
        e.addSuppressed(suppressed);
      }
      throw e;
    }
  }

  /**
   * Publishes staged files, each whole, at once and durable. What is published already is left alone,
   * so that it may be repeated after a crash at any moment. The staged names are gone on return.
   *
   * @param staged names that were staged
   * @param targets for each its final name
   * @param lengths for each how many bytes it has
   * @throws FileNotFoundException if a file is neither staged nor published
   * @throws FileAlreadyExistsException if another file has a final name
   * @throws IOException if a file was staged with another length, or storage failed. Of several
   *     failures the first, with the others suppressed; all other files are published.
   */
  public void publish(
      List<String> staged, List<String> targets, List<? extends Number> lengths)
      throws IOException {
    if (staged.size() != targets.size() || staged.size() != lengths.size()) {
      throw new IllegalArgumentException(
          "expected as many targets and lengths as staged files, found "
              + List.of(staged.size(), targets.size(), lengths.size()));
    }
    Map<Path, FileStatus> listed =
        FileErrors.explained("cannot look for staged files", () -> listed(staged));
    List<Task> tasks = new ArrayList<>();
    for (int i = 0; i < staged.size(); i++) {
      String source = staged.get(i);
      String target = targets.get(i);
      long length = lengths.get(i).longValue();
      tasks.add(
          () ->
              FileErrors.explained(
                  "cannot publish the staged file " + source + " as " + target,
                  () -> {
                    Path path = files.path(source);
                    Path published = files.path(target);
                    return FileErrors.repeated(() -> publish(path, published, length, listed));
                  }));
    }
    runAll(tasks);
  }

  /** What is in the folders of staged files that are renamed: one request for many of them. */
  private Map<Path, FileStatus> listed(List<String> staged) throws IOException {
    Set<Path> folders = new TreeSet<>();
    for (String source : staged) {
      Path path = files.path(source);
      if (!files.isObjectStore(path)) {
        folders.add(path.getParent());
      }
    }
    Map<Path, FileStatus> found = new HashMap<>();
    for (Path folder : folders) {
      try {
        RemoteIterator<FileStatus> entries =
            files.fileSystem(folder).listStatusIterator(folder);
        while (entries.hasNext()) {
          FileStatus entry = entries.next();
          found.put(entry.getPath(), entry);
        }
      } catch (FileNotFoundException gone) {
        // All that was in it is published, or lost.
      }
    }
    return found;
  }

  /**
   * Throws staged files away, uploads included. Those that are not there are left out.
   *
   * @throws IOException if storage failed; as for {@link #publish} all others are gone
   */
  public void discard(List<String> staged) throws IOException {
    List<Task> tasks = new ArrayList<>();
    for (String source : staged) {
      tasks.add(
          () ->
              FileErrors.explained(
                  "cannot discard the staged file " + source, () -> discard(files.path(source))));
    }
    runAll(tasks);
  }

  /** Returns the object that is left to be deleted, null without one. */
  private Path discard(Path staged) throws IOException {
    FileSystem fileSystem = files.fileSystem(staged);
    if (!files.isObjectStore(staged)) {
      fileSystem.delete(staged, false);
      return null;
    }
    try {
      PendingUpload upload = PendingUpload.read(fileSystem, staged);
      if (upload != null) {
        upload.abort(fileSystem);
      }
    } catch (FileNotFoundException gone) {
      return null;
    }
    return staged;
  }

  /** Returns the staged object that is left to be deleted, null without one. */
  private Path publish(
      Path staged, Path target, long length, Map<Path, FileStatus> listed) throws IOException {
    if (!files.isObjectStore(staged)) {
      rename(listed.get(staged), staged, target, length);
      return null;
    }
    PendingUpload upload;
    try {
      upload = PendingUpload.read(files.fileSystem(staged), staged);
    } catch (FileNotFoundException gone) {
      requirePublished(target, length);
      return null;
    }
    if (upload == null) {
      rename(status(files.fileSystem(staged), staged), staged, target, length);
      return null;
    }
    complete(upload, target, length);
    return staged;
  }

  /** Renames a staged file, which is found null if it is gone. */
  private void rename(FileStatus found, Path staged, Path target, long length)
      throws IOException {
    if (found == null) {
      requirePublished(target, length);
      return;
    }
    AtomicFiles atomic = files.at(staged);
    try {
      requireLength(found.getLen(), length);
      atomic.renameNew(staged, target);
    } catch (FileNotFoundException | NoSuchFileException gone) {
      requirePublished(target, length);
    } catch (FileAlreadyExistsException | java.nio.file.FileAlreadyExistsException taken) {
      settle(atomic, staged, target, length);
    }
  }

  /** The final name is taken: by this file, or by another one. */
  private void settle(AtomicFiles atomic, Path staged, Path target, long length)
      throws IOException {
    boolean both;
    try {
      both = atomic.leavesBothNames() && atomic.same(staged, target);
    } catch (FileNotFoundException | NoSuchFileException gone) {
      // Another driver, which is about to be fenced, publishes the same.
      requirePublished(target, length);
      return;
    }
    if (both) {
      atomic.fileSystem.delete(staged, false);
    } else if (atomic.fileSystem.exists(staged)) {
      throw occupied();
    } else {
      requirePublished(target, length);
    }
  }

  private void complete(PendingUpload upload, Path target, long length) throws IOException {
    FileSystem fileSystem = files.fileSystem(target);
    requireLength(upload.length(), length);
    if (!upload.target().equals(target)) {
      throw new IOException("it was staged to be published as " + upload.target());
    }
    if (!isObject(fileSystem, target)) {
      try {
        upload.complete(fileSystem);
        return;
      } catch (IOException e) {
        if (!isObject(fileSystem, target)) {
          throw e instanceof FileNotFoundException ? lost(e) : e;
        }
        // Completed after all: its answer was lost, or another driver was quicker.
      }
    }
    FileStatus found = fileSystem.getFileStatus(target);
    if (found.getLen() != length || !upload.isContentOf(fileSystem, target)) {
      throw occupied();
    }
  }

  private static void requireLength(long found, long expected) throws IOException {
    if (found != expected) {
      throw new IOException("it was staged with " + expected + " bytes and has " + found);
    }
  }

  /** Checks that a file whose staged name is gone has its final name. */
  private void requirePublished(Path target, long length) throws IOException {
    FileStatus found = status(files.fileSystem(target), target);
    if (found == null) {
      throw lost(null);
    }
    if (!found.isFile() || found.getLen() != length) {
      throw occupied();
    }
  }

  private static FileNotFoundException lost(IOException cause) {
    FileNotFoundException lost =
        new FileNotFoundException(
            (cause == null ? "neither of the two is there" : "its upload is not there any more")
                + "; rows of a completed checkpoint were lost");
    lost.initCause(cause);
    return lost;
  }

  private static FileAlreadyExistsException occupied() {
    return new FileAlreadyExistsException(
        "another file has the final name: another pipeline writes to the same folder, or one with"
            + " the same checkpoint ids did before");
  }

  /** Whether there is such an object: one request, while the status would ask for a folder as well. */
  private static boolean isObject(FileSystem fileSystem, Path path) throws IOException {
    try {
      fileSystem.open(path).close();
      return true;
    } catch (FileNotFoundException absent) {
      return false;
    }
  }

  /** Null without such a file. */
  private static FileStatus status(FileSystem fileSystem, Path path) throws IOException {
    try {
      return fileSystem.getFileStatus(path);
    } catch (FileNotFoundException absent) {
      return null;
    }
  }

  /** Handles one staged file; returns its name if that is left to be deleted, else null. */
  private interface Task {
    Path run() throws IOException;
  }

  /** Runs all of them, and deletes what they leave, even where some fail. */
  private void runAll(List<Task> tasks) throws IOException {
    if (tasks.isEmpty()) {
      return;
    }
    Set<Path> left = new TreeSet<>();
    Exception first = null;
    ExecutorService threads =
        Executors.newFixedThreadPool(
            Math.min(THREADS, tasks.size()),
            DaemonThreads.named("holdfast-staged"));
    try {
      List<Future<Path>> running = new ArrayList<>();
      tasks.forEach(task -> running.add(threads.submit(task::run)));
      for (Future<Path> one : running) {
        try {
          Path path = FutureIO.awaitFuture(one);
          if (path != null) {
            left.add(path);
          }
        } catch (IOException | RuntimeException e) {
          first = with(first, e);
        }
      }
    } finally {
      threads.shutdown();
    }
    try {
      FileErrors.explained(
          "cannot delete what was staged",
          () -> {
            files.delete(left);
            return null;
          });
    } catch (IOException | RuntimeException e) {
      first = with(first, e);
    }
    if (first instanceof IOException e) {
      throw e;
    }
    if (first != null) {
      throw (RuntimeException) first;
    }
  }

  private static Exception with(Exception first, Exception next) {
    if (first == null) {
      return next;
    }
    first.addSuppressed(next);
    return first;
  }
}
