package io.holdfast.spark;

import io.holdfast.spark.merged.Compression;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.staging.StagedOutput;
import io.holdfast.spark.storage.FileErrors;
import io.holdfast.spark.storage.Storages;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.util.functional.RemoteIterators;

/**
 * Files of regional pipelines on any file system that Spark reaches, for the pipelines' driver in
 * Python. URIs name files and folders. A path without a scheme belongs to the default file system.
 *
 * <p>Errors have exactly these classes: {@link FileNotFoundException}, {@link
 * FileAlreadyExistsException}, {@link org.apache.hadoop.security.AccessControlException}, and
 * {@link IOException} for all others; {@link IllegalArgumentException} for a text that is no URI.
 */
public final class PipelineFiles {
  private final Configuration conf;
  private final Storages files;
  private final StagedOutput output;

  public PipelineFiles(Configuration conf) {
    this.conf = conf;
    files = new Storages(conf);
    output = new StagedOutput(files);
  }

  private interface PathStep<T> {
    T run(Path path) throws IOException;
  }

  /** Runs a step on the path of a URI. Its errors begin with {@code failure}. */
  private <T> T at(String failure, String uri, PathStep<T> step) throws IOException {
    return FileErrors.explained(failure + " " + uri, () -> step.run(files.path(uri)));
  }

  /**
   * Returns the URI of a folder with scheme and authority, without {@code .}, {@code ..} and a
   * slash at its end.
   *
   * @throws IOException if Spark reaches no files of that scheme
   */
  public String qualify(String uri) throws IOException {
    String qualified = at("cannot resolve", uri, Path::toString);
    return qualified.endsWith("/") ? qualified.substring(0, qualified.length() - 1) : qualified;
  }

  /** Returns whether a rename is one step. On object stores it is not. */
  public boolean renames(String uri) throws IOException {
    return at("cannot resolve", uri, path -> !files.isObjectStore(path));
  }

  /**
   * Returns {@code "f <bytes> <modified ms>"} for a file, {@code "d 0 <modified ms>"} for a folder,
   * null if there is neither. On an object store a folder is a name with objects below it.
   */
  public String status(String uri) throws IOException {
    FileStatus found = at("cannot look at", uri, files::status);
    return found == null ? null : line(found);
  }

  /**
   * Returns the content of a folder, sorted by name: {@link #status}, a space and the name of each.
   *
   * @throws FileNotFoundException if there is no such folder
   */
  public String[] list(String uri) throws IOException {
    return at("cannot list", uri, this::list);
  }

  private String[] list(Path folder) throws IOException {
    List<FileStatus> found =
        RemoteIterators.toList(files.fileSystem(folder).listStatusIterator(folder));
    if (found.size() == 1 && found.get(0).getPath().equals(folder)) {
      throw new IOException("expected a folder, found a file");
    }
    return found.stream()
        .sorted(Comparator.comparing(entry -> entry.getPath().getName()))
        .map(entry -> line(entry) + " " + entry.getPath().getName())
        .toArray(String[]::new);
  }

  private static String line(FileStatus status) {
    boolean folder = status.isDirectory();
    long bytes = folder ? 0 : status.getLen();
    return (folder ? "d " : "f ") + bytes + " " + status.getModificationTime();
  }

  /** Returns the content of a file as readers see it now, even while it is being written. */
  public byte[] read(String uri) throws IOException {
    return at("cannot read", uri, this::read);
  }

  private byte[] read(Path path) throws IOException {
    try (InputStream in = files.fileSystem(path).open(path)) {
      return in.readAllBytes();
    }
  }

  /**
   * Makes a file with its parents, whole and durable on return. No reader sees a part of it.
   *
   * @throws FileAlreadyExistsException if the name is taken; of several at once, one succeeds
   */
  public void create(String uri, byte[] data) throws IOException {
    write("cannot create", uri, data, false);
  }

  /** Like {@link #create}, but replaces a file: readers see the old or the new one. */
  public void replace(String uri, byte[] data) throws IOException {
    write("cannot write", uri, data, true);
  }

  private void write(String failure, String uri, byte[] data, boolean replace) throws IOException {
    at(
        failure,
        uri,
        path -> {
          files.at(path).write(path, out -> out.write(data), replace);
          return null;
        });
  }

  /** Like {@link #create}, with the content of another file. */
  public void copy(String from, String to) throws IOException {
    at(
        "cannot copy",
        from,
        source -> {
          Path target = files.path(to);
          try (InputStream in = files.fileSystem(source).open(source)) {
            files.at(target).write(target, in::transferTo, false);
          }
          return null;
        });
  }

  /** True on file systems that rename files in one step. */
  public boolean writesThrough(String uri) throws IOException {
    return at("cannot resolve", uri, path -> files.at(path).writesThrough());
  }

  /**
   * Like {@link #create} or {@link #replace}, by way of a folder on the same file system, which has
   * to exist. Deleting that folder ends all such writes that are under way.
   *
   * @throws FileNotFoundException if the folder is gone
   */
  public void writeThrough(String folder, String uri, byte[] data, boolean replace)
      throws IOException {
    at(
        "cannot write",
        uri,
        path -> {
          Path way = files.path(folder);
          files.at(path).writeThrough(way, path, out -> out.write(data), replace);
          return null;
        });
  }

  /** Sets the time of a file or folder to now; throws {@link FileNotFoundException} without one. */
  public void touch(String uri) throws IOException {
    at(
        "cannot change the time of",
        uri,
        path -> {
          files.fileSystem(path).setTimes(path, System.currentTimeMillis(), -1);
          return null;
        });
  }

  /**
   * Deletes a file or a folder; returns false if there was neither.
   *
   * @throws IOException if a folder is not empty and {@code recursive} is false
   */
  public boolean delete(String uri, boolean recursive) throws IOException {
    return at("cannot delete", uri, path -> files.fileSystem(path).delete(path, recursive));
  }

  /**
   * Deletes files that exist. An object store gets one request per folder, and none that asks
   * whether the files exist.
   *
   * @throws IOException if one is not deleted; others may be
   */
  public void removeAll(List<String> uris) throws IOException {
    FileErrors.explained(
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
   * Makes a folder with its parents, unless it exists.
   *
   * @throws FileAlreadyExistsException if a file has the name
   */
  public void makeFolder(String uri) throws IOException {
    at(
        "cannot make the folder",
        uri,
        path -> {
          if (!files.fileSystem(path).mkdirs(path)) {
            throw new IOException("the file system does not say why");
          }
          return null;
        });
  }

  /**
   * Renames a file or a folder. On an object store, copies a file and refuses a folder.
   *
   * @throws FileAlreadyExistsException if the name is taken
   * @throws FileNotFoundException if there is nothing to rename
   */
  public void renameNew(String from, String to) throws IOException {
    FileErrors.explained(
        "cannot rename " + from + " to " + to,
        () -> {
          Path path = files.path(from);
          files.at(path).renameNew(path, files.path(to));
        });
  }

  public void stage(String localFile, String staged, String target) throws IOException {
    output.stage(localFile, staged, target);
  }

  public void publish(
      List<String> staged, List<String> targets, List<? extends Number> lengths)
      throws IOException {
    output.publish(staged, targets, lengths);
  }

  public void discard(List<String> staged) throws IOException {
    output.discard(staged);
  }

  /**
   * Opens a folder of physical files, to read segments one after the other. Files stay open, and
   * neighbouring small segments are read together.
   *
   * @return a handle for {@link Native#readSegment} and others, until {@link Native#closeStored}
   */
  public long openSegments(String folder) {
    SegmentFolder opened = SegmentFolder.at(folder, conf);
    return Native.openStored(opened.name, opened.files());
  }

  /**
   * Begins a copy of a checkpoint's segments.
   *
   * @param folder a new folder, which nothing else writes to
   * @param maxFileBytes size at which a physical file is sealed
   * @return a handle for {@link Native#appendSegment} and others, until {@link
   *     Native#closeRegional}
   */
  public long openImage(String folder, long maxFileBytes) {
    SegmentFolder made = SegmentFolder.at(folder, conf);
    // Terms of managers are times, so a later pipeline in this folder gets a newer term.
    long term = System.currentTimeMillis();
    int compression = Compression.LZ4.code;
    return Native.openRegional(
        made.name, made.files(), term, new long[0], "", maxFileBytes, compression);
  }
}
