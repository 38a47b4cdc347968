package io.holdfast.spark;

import io.holdfast.spark.files.FileErrors;
import io.holdfast.spark.files.ReachedFiles;
import io.holdfast.spark.files.SegmentFolder;
import io.holdfast.spark.files.StagedOutput;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;

/**
 * Files of regional pipelines on any file system that Spark reaches, for their driver, which is
 * written in Python. Files and folders are named by URIs; a path without a scheme is one of the
 * default file system.
 *
 * <p>Errors are of exactly these classes: {@link FileNotFoundException}, {@link
 * FileAlreadyExistsException}, {@link org.apache.hadoop.security.AccessControlException}, and {@link
 * IOException} for all others; {@link IllegalArgumentException} for what is no URI.
 */
public final class PipelineFiles {
  private final Configuration conf;
  private final ReachedFiles files;
  private final StagedOutput output;

  public PipelineFiles(Configuration conf) {
    this.conf = conf;
    files = new ReachedFiles(conf);
    output = new StagedOutput(files);
  }

  /**
   * Returns the whole URI of a folder: with scheme and authority, without {@code .} and {@code ..},
   * without a slash at its end.
   *
   * @throws IOException if Spark reaches no files of that scheme
   */
  public String qualify(String uri) throws IOException {
    String qualified =
        FileErrors.explained("cannot resolve " + uri, () -> files.path(uri)).toString();
    return qualified.endsWith("/") ? qualified.substring(0, qualified.length() - 1) : qualified;
  }

  /** Returns whether files and folders can be renamed in one step, which they cannot on object stores. */
  public boolean renames(String uri) throws IOException {
    return FileErrors.explained(
        "cannot resolve " + uri, () -> !files.isObjectStore(files.path(uri)));
  }

  /**
   * Returns {@code "f <bytes> <modified ms>"} for a file, {@code "d 0 <modified ms>"} for a folder,
   * which on an object store is what has objects below; null if there is neither.
   */
  public String status(String uri) throws IOException {
    return FileErrors.explained(
        "cannot look at " + uri,
        () -> {
          Path path = files.path(uri);
          try {
            return line(files.fileSystem(path).getFileStatus(path));
          } catch (FileNotFoundException absent) {
            return null;
          }
        });
  }

  /**
   * Returns what is in a folder, sorted by name: for each what {@link #status} says, a space, its name.
   *
   * @throws FileNotFoundException if there is no such folder
   */
  public String[] list(String uri) throws IOException {
    return FileErrors.explained(
        "cannot list " + uri,
        () -> {
          Path folder = files.path(uri);
          List<FileStatus> found = new ArrayList<>();
          RemoteIterator<FileStatus> entries =
              files.fileSystem(folder).listStatusIterator(folder);
          while (entries.hasNext()) {
            found.add(entries.next());
          }
          if (found.size() == 1 && found.get(0).getPath().equals(folder)) {
            throw new IOException("expected a folder, found a file");
          }
          return found.stream()
              .sorted(Comparator.comparing(entry -> entry.getPath().getName()))
              .map(entry -> line(entry) + " " + entry.getPath().getName())
              .toArray(String[]::new);
        });
  }

  private static String line(FileStatus status) {
    boolean folder = status.isDirectory();
    long bytes = folder ? 0 : status.getLen();
    return (folder ? "d " : "f ") + bytes + " " + status.getModificationTime();
  }

  /** Returns all of a file; of one that is being written what readers see at this moment. */
  public byte[] read(String uri) throws IOException {
    return FileErrors.explained(
        "cannot read " + uri,
        () -> {
          Path path = files.path(uri);
          try (InputStream in = files.fileSystem(path).open(path)) {
            return in.readAllBytes();
          }
        });
  }

  /**
   * Makes a file with its parents, whole and durable on return. No reader sees a part of it.
   *
   * @throws FileAlreadyExistsException if the name is taken; of several processes that create it at the
   *     same time one does
   */
  public void create(String uri, byte[] data) throws IOException {
    explained("cannot create " + uri, () -> files.write(files.path(uri), data, false));
  }

  /** As {@link #create}, but a file that is there is replaced: readers see the old or the new one. */
  public void replace(String uri, byte[] data) throws IOException {
    explained("cannot write " + uri, () -> files.write(files.path(uri), data, true));
  }

  /**
   * Whether {@link #writeThrough} does what it says: on file systems that rename files in one step.
   */
  public boolean writesThrough(String uri) throws IOException {
    return FileErrors.explained(
        "cannot resolve " + uri, () -> files.writesThrough(files.path(uri)));
  }

  /**
   * As {@link #create} or, to replace a file, {@link #replace}, by way of a folder on the same file
   * system. It is not made, and whoever deletes it puts an end to all such writes that are under way.
   *
   * @throws FileNotFoundException if the folder is gone
   */
  public void writeThrough(String folder, String uri, byte[] data, boolean replace)
      throws IOException {
    explained(
        "cannot write " + uri,
        () -> files.writeThrough(files.path(folder), files.path(uri), data, replace));
  }

  /**
   * Says of a file or folder that it changed just now.
   *
   * @throws FileNotFoundException if there is none
   */
  public void touch(String uri) throws IOException {
    explained(
        "cannot change the time of " + uri,
        () -> {
          Path path = files.path(uri);
          files.fileSystem(path).setTimes(path, System.currentTimeMillis(), -1);
        });
  }

  /**
   * Deletes a file or a folder.
   *
   * @return false if there was neither
   * @throws IOException if a folder holds something, and {@code recursive} is false
   */
  public boolean delete(String uri, boolean recursive) throws IOException {
    return FileErrors.explained(
        "cannot delete " + uri,
        () -> {
          Path path = files.path(uri);
          FileSystem fileSystem = files.fileSystem(path);
          return fileSystem.delete(path, recursive);
        });
  }

  /**
   * Deletes files, as far as they are there; an object store is not asked whether they are, and one
   * request deletes those of one folder.
   *
   * @throws IOException if one is not deleted: others may be
   */
  public void removeAll(List<String> uris) throws IOException {
    explained(
        "cannot delete " + String.join(", ", uris),
        () -> {
          List<Path> paths = new ArrayList<>();
          for (String uri : uris) {
            paths.add(files.path(uri));
          }
          files.delete(paths);
        });
  }

  /**
   * Makes a folder with its parents; one that is there is left as it is.
   *
   * @throws FileAlreadyExistsException if a file has the name
   */
  public void makeFolder(String uri) throws IOException {
    explained(
        "cannot make the folder " + uri,
        () -> {
          Path path = files.path(uri);
          if (!files.fileSystem(path).mkdirs(path)) {
            throw new IOException("the file system does not say why");
          }
        });
  }

  /**
   * Gives a file or a folder another name; on an object store only a file, which is copied.
   *
   * @throws FileAlreadyExistsException if the name is taken
   * @throws FileNotFoundException if there is nothing to rename
   */
  public void renameNew(String from, String to) throws IOException {
    explained(
        "cannot rename " + from + " to " + to,
        () -> files.renameNew(files.path(from), files.path(to)));
  }

  /** See {@link StagedOutput#stage}. */
  public void stage(String localFile, String staged, String target) throws IOException {
    output.stage(localFile, staged, target);
  }

  /** See {@link StagedOutput#publish}. */
  public void publish(
      List<String> staged, List<String> targets, List<? extends Number> lengths)
      throws IOException {
    output.publish(staged, targets, lengths);
  }

  /** See {@link StagedOutput#discard}. */
  public void discard(List<String> staged) throws IOException {
    output.discard(staged);
  }

  /** Opens a folder of physical files, to read segments one after the other. */
  public StoredSegments openSegments(String folder) {
    return new StoredSegments(SegmentFolder.at(folder, conf));
  }

  /**
   * Begins a copy of a checkpoint's segments.
   *
   * @param folder a new folder, which nothing else writes to
   * @param maxFileBytes size at which a physical file is sealed
   */
  public SegmentImage openImage(String folder, long maxFileBytes) {
    return new SegmentImage(SegmentFolder.at(folder, conf), maxFileBytes);
  }

  private interface Action {
    void run() throws IOException;
  }

  private static void explained(String what, Action action) throws IOException {
    FileErrors.explained(
        what,
        () -> {
          action.run();
          return null;
        });
  }
}
