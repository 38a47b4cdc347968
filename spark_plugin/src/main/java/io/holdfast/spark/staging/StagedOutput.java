package io.holdfast.spark.staging;

import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.storage.FileErrors;
import io.holdfast.spark.storage.Storage;
import io.holdfast.spark.storage.Storages;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.nio.file.NoSuchFileException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.util.functional.FutureIO;
import org.apache.hadoop.util.functional.RemoteIterators;

/**
 * Output in two steps. A task stages a file. When the checkpoint with its rows is complete, the
 * driver publishes the file under its final name, whole and at once.
 *
 * <p>A file system renames the staged file. On an object store the staged object names an upload in
 * parts, and its completion makes the final object. A store without uploads in parts gets a copy.
 *
 * <p>A process that is killed after the start of an upload and before its staged object leaves
 * unknown parts. The store's own rule for incomplete uploads removes them.
 */
public final class StagedOutput {
  private static final int THREADS = 16;

  private final Storages files;

  public StagedOutput(Configuration conf) {
    this(new Storages(conf));
  }

  public StagedOutput(Storages files) {
    this.files = files;
  }

  /**
   * Stages a local file for a target. It is durable on return, and invisible as the target. A
   * failure leaves nothing.
   *
   * @param local path of the local file
   * @param staged URI that no other task uses
   * @param target URI of the published file
   */
  public void stage(String local, String staged, String target) throws IOException {
    FileErrors.explained(
        "cannot stage " + local + " as " + staged,
        () -> stage(java.nio.file.Path.of(local), files.path(staged), files.path(target)));
  }

  private void stage(java.nio.file.Path local, Path staged, Path target) throws IOException {
    FileSystem fileSystem = files.fileSystem(staged);
    Storage atomic = files.at(staged);
    if (!files.isObjectStore(staged) || !Upload.serves(fileSystem, target)) {
      atomic.writeOwn(staged, Storage.contentOf(local));
      return;
    }
    Upload upload = Upload.of(local, fileSystem, target);
    try {
      byte[] json = upload.toJson();
      atomic.writeOwn(staged, out -> out.write(json));
    } catch (IOException | RuntimeException e) {
      FileErrors.suppressed(e, () -> upload.abort(fileSystem));
      throw e;
    }
  }

  /**
   * Publishes staged files, each whole, at once and durable. The call may be repeated after a crash
   * at any moment: published files remain unchanged. The staged names are gone on return.
   *
   * @param targets the final name of each
   * @param lengths the size of each in bytes
   * @throws FileNotFoundException if a file is neither staged nor published
   * @throws FileAlreadyExistsException if another file has a final name
   * @throws IOException if a file was staged with another length, or storage failed. The first
   *     failure is thrown, with the others suppressed; all other files are published.
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
    List<Callable<Path>> tasks = new ArrayList<>();
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

  /** The content of folders of staged files that are renamed: one request tells many files. */
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
        RemoteIterators.foreach(
            files.fileSystem(folder).listStatusIterator(folder),
            entry -> found.put(entry.getPath(), entry));
      } catch (FileNotFoundException gone) {
        // Its files are published, or lost.
      }
    }
    return found;
  }

  /**
   * Discards staged files that exist, with their uploads.
   *
   * @throws IOException if storage failed; as in {@link #publish}, all other files are gone
   */
  public void discard(List<String> staged) throws IOException {
    List<Callable<Path>> tasks = new ArrayList<>();
    for (String source : staged) {
      tasks.add(
          () ->
              FileErrors.explained(
                  "cannot discard the staged file " + source, () -> discard(files.path(source))));
    }
    runAll(tasks);
  }

  /** Returns the object that remains to be deleted; null without one. */
  private Path discard(Path staged) throws IOException {
    FileSystem fileSystem = files.fileSystem(staged);
    if (!files.isObjectStore(staged)) {
      fileSystem.delete(staged, false);
      return null;
    }
    try {
      Upload upload = Upload.read(fileSystem, staged);
      if (upload != null) {
        upload.abort(fileSystem);
      }
    } catch (FileNotFoundException gone) {
      return null;
    }
    return staged;
  }

  /** Returns the staged object that remains to be deleted; null without one. */
  private Path publish(Path staged, Path target, long length, Map<Path, FileStatus> listed)
      throws IOException {
    if (!files.isObjectStore(staged)) {
      rename(listed.get(staged), staged, target, length);
      return null;
    }
    Upload upload;
    try {
      upload = Upload.read(files.fileSystem(staged), staged);
    } catch (FileNotFoundException gone) {
      requirePublished(target, length);
      return null;
    }
    if (upload == null) {
      rename(files.status(staged), staged, target, length);
      return null;
    }
    complete(upload, target, length);
    return staged;
  }

  /** The status of a staged file is null if it is gone. */
  private void rename(FileStatus found, Path staged, Path target, long length)
      throws IOException {
    if (found == null) {
      requirePublished(target, length);
      return;
    }
    Storage atomic = files.at(staged);
    try {
      requireLength(found.getLen(), length);
      atomic.renameNew(staged, target);
    } catch (FileNotFoundException | NoSuchFileException gone) {
      requirePublished(target, length);
    } catch (FileAlreadyExistsException | java.nio.file.FileAlreadyExistsException taken) {
      settle(atomic, staged, target, length);
    }
  }

  /** This file has the final name, or another one has it. */
  private void settle(Storage atomic, Path staged, Path target, long length) throws IOException {
    boolean both;
    try {
      both = atomic.leavesBothNames() && atomic.same(staged, target);
    } catch (FileNotFoundException | NoSuchFileException gone) {
      // Another driver that is about to be fenced publishes the same.
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

  private void complete(Upload upload, Path target, long length) throws IOException {
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
        // The upload was completed: the answer was lost, or another driver was quicker.
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

  /** Checks that a file without its staged name has its final name. */
  private void requirePublished(Path target, long length) throws IOException {
    FileStatus found = files.status(target);
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
                + ", and no record says that it was published");
    lost.initCause(cause);
    return lost;
  }

  private static FileAlreadyExistsException occupied() {
    return new FileAlreadyExistsException(
        "another file has the final name: another pipeline writes to the same folder, or one with"
            + " the same checkpoint ids did before");
  }

  /** Takes one request. The status of an object would ask for a folder as well. */
  private static boolean isObject(FileSystem fileSystem, Path path) throws IOException {
    try {
      fileSystem.open(path).close();
      return true;
    } catch (FileNotFoundException absent) {
      return false;
    }
  }

  /** Runs all tasks, even if some fail, and deletes the staged files that they return. */
  private void runAll(List<Callable<Path>> tasks) throws IOException {
    if (tasks.isEmpty()) {
      return;
    }
    Set<Path> left = new TreeSet<>();
    Exception first = null;
    ExecutorService threads =
        Executors.newFixedThreadPool(
            Math.min(THREADS, tasks.size()), DaemonThreads.named("holdfast-staged"));
    try {
      List<Future<Path>> running = new ArrayList<>();
      tasks.forEach(task -> running.add(threads.submit(task)));
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
      FileErrors.explained("cannot delete what was staged", () -> files.delete(left));
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
