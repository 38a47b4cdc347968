package io.holdfast.spark.storage;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UnsupportedFileSystemException;

/** Finds the {@link Storage} of a path on all file systems that a Hadoop configuration reaches. */
public final class Storages {
  private final Configuration conf;

  /** By scheme and authority, as each has its own client. */
  private final Map<String, RenamingStorage> renamed = new ConcurrentHashMap<>();

  public Storages(Configuration conf) {
    this.conf = conf;
  }

  /**
   * Qualifies a path: without a scheme it belongs to the default file system.
   *
   * @throws IllegalArgumentException if the text is no URI of a file
   */
  public Path path(String uri) throws IOException {
    Path path = new Path(uri);
    if (path.toUri().getPath().isEmpty()) {
      path = new Path(path, "/");
    }
    Path qualified = fileSystem(path).makeQualified(path);
    if (qualified.toUri().getPath().startsWith("/..")) {
      throw new IllegalArgumentException(uri + " leads out of the file system, above its root");
    }
    return qualified;
  }

  public FileSystem fileSystem(Path path) throws IOException {
    try {
      return path.getFileSystem(conf);
    } catch (UnsupportedFileSystemException e) {
      throw noSuch(path, e);
    } catch (RuntimeException e) {
      if (e.getCause() instanceof ClassNotFoundException) {
        throw noSuch(path, e);
      }
      throw e;
    }
  }

  private IOException noSuch(Path path, Exception cause) {
    URI uri = path.toUri();
    URI named = uri.getScheme() == null ? FileSystem.getDefaultUri(conf).resolve(uri) : uri;
    return new IOException(
        String.format(
            "Spark reaches no files of the scheme '%s', as in %s (%s). Put the Hadoop connector"
                + " for it on the class path, as with spark.jars.packages, or use another folder.",
            named.getScheme(), named, cause.getMessage()),
        cause);
  }

  public static boolean isLocal(Path path) {
    return "file".equals(path.toUri().getScheme());
  }

  /** Returns true if a path is on an object store, where a rename is a copy. */
  public boolean isObjectStore(Path path) throws IOException {
    return ObjectStores.serve(fileSystem(path), path);
  }

  public Storage at(Path path) throws IOException {
    FileSystem fileSystem = fileSystem(path);
    if (isLocal(path)) {
      return new LocalStorage(fileSystem);
    }
    if (isObjectStore(path)) {
      return new ObjectStorage(fileSystem);
    }
    String key = path.toUri().getScheme() + "://" + path.toUri().getAuthority();
    RenamingStorage known = renamed.get(key);
    if (known == null) {
      known = new RenamingStorage(fileSystem, conf);
      renamed.put(key, known);
    }
    return known;
  }

  /** The files and folders in a folder; none without the folder. */
  public static Stream<FileStatus> list(FileSystem files, Path folder) throws IOException {
    try {
      return Stream.of(files.listStatus(folder));
    } catch (FileNotFoundException none) {
      return Stream.empty();
    }
  }

  /** Null if there is neither a file nor a folder. */
  public FileStatus status(Path path) throws IOException {
    try {
      return fileSystem(path).getFileStatus(path);
    } catch (FileNotFoundException absent) {
      return null;
    }
  }

  /** Deletes files that exist. Throws the first failure; later files may not have been tried. */
  public void delete(Collection<Path> paths) throws IOException {
    Map<FileSystem, List<Path>> byFileSystem = new LinkedHashMap<>();
    for (Path path : paths) {
      byFileSystem.computeIfAbsent(fileSystem(path), any -> new ArrayList<>()).add(path);
    }
    for (Map.Entry<FileSystem, List<Path>> there : byFileSystem.entrySet()) {
      ObjectStores.delete(there.getKey(), there.getValue());
    }
  }
}
