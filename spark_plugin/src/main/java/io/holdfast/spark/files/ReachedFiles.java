package io.holdfast.spark.files;

import java.io.IOException;
import java.net.URI;
import java.util.ArrayList;
import java.util.Collection;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UnsupportedFileSystemException;

/** All file systems that a Hadoop configuration reaches. */
public final class ReachedFiles {
  private final Configuration conf;

  /** By scheme and authority: what renames has a client of its own. */
  private final Map<String, RenamedFiles> renamed = new ConcurrentHashMap<>();

  public ReachedFiles(Configuration conf) {
    this.conf = conf;
  }

  /**
   * The qualified path of a URI; a path without a scheme is one of the default file system.
   *
   * @throws IllegalArgumentException if that is no URI of a file
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
        "Spark reaches no files of the scheme '"
            + named.getScheme()
            + "', as in "
            + named
            + " ("
            + cause.getMessage()
            + "). Put the Hadoop connector for it on the class path, as with spark.jars.packages,"
            + " or use another folder.",
        cause);
  }

  public static boolean isLocal(Path path) {
    return "file".equals(path.toUri().getScheme());
  }

  /** Whether files of an object store are meant, where a rename is a copy. */
  public boolean isObjectStore(Path path) throws IOException {
    return ObjectStream.serves(fileSystem(path), path);
  }

  /** How files get their names there. */
  AtomicFiles at(Path path) throws IOException {
    FileSystem fileSystem = fileSystem(path);
    if (isLocal(path)) {
      return new LocalFiles(fileSystem);
    }
    if (isObjectStore(path)) {
      return new ObjectFiles(fileSystem);
    }
    String key = path.toUri().getScheme() + "://" + path.toUri().getAuthority();
    RenamedFiles known = renamed.get(key);
    if (known == null) {
      known = new RenamedFiles(fileSystem, conf);
      renamed.put(key, known);
    }
    return known;
  }

  /** Makes a file. */
  public void write(Path path, byte[] data, boolean replace) throws IOException {
    at(path).write(path, out -> out.write(data), replace);
  }

  /** Makes a file by way of a folder, see {@link AtomicFiles#writeThrough}. */
  public void writeThrough(Path folder, Path path, byte[] data, boolean replace)
      throws IOException {
    at(path).writeThrough(folder, path, out -> out.write(data), replace);
  }

  /** Whether {@link #writeThrough} does what it says there. */
  public boolean writesThrough(Path path) throws IOException {
    return at(path).writesThrough();
  }

  public void renameNew(Path from, Path to) throws IOException {
    at(from).renameNew(from, to);
  }

  /**
   * Deletes files; what is not there is deleted already.
   *
   * @throws IOException the first failure: files that came after it may not have been tried
   */
  public void delete(Collection<Path> paths) throws IOException {
    Map<FileSystem, List<Path>> byFileSystem = new LinkedHashMap<>();
    for (Path path : paths) {
      byFileSystem.computeIfAbsent(fileSystem(path), any -> new ArrayList<>()).add(path);
    }
    for (Map.Entry<FileSystem, List<Path>> there : byFileSystem.entrySet()) {
      Deletes.delete(there.getKey(), there.getValue());
    }
  }
}
