package io.holdfast.spark.files;

import io.holdfast.spark.minor.AtomicStream;
import java.io.IOException;
import java.nio.file.attribute.FileAttribute;
import java.nio.file.attribute.PosixFilePermissions;
import java.util.Optional;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.permission.FsPermission;

/** How Spark's own files of a checkpoint are made: what has its name is durable. */
public final class DurableStreams {
  private DurableStreams() {}

  /**
   * Begins a file.
   *
   * @param path absolute
   * @return empty where nothing is known to be better than Spark's own way
   */
  public static Optional<AtomicStream> create(
      FileSystem fileSystem, Path path, boolean overwrite, Configuration conf)
      throws IOException {
    if (ObjectStream.serves(fileSystem, path)) {
      return Optional.of(ObjectStream.create(fileSystem, path, overwrite));
    }
    if (isLocal(fileSystem)) {
      FileAttribute<?> permission = permission(FsPermission.getFileDefault(), conf);
      return Optional.of(LocalStream.create(LocalFiles.local(path), permission, overwrite));
    }
    if (HdfsStream.serves(fileSystem)) {
      return Optional.of(HdfsStream.create(fileSystem, path, overwrite));
    }
    return Optional.empty();
  }

  /** Whether a name that another application took is refused when a file is ended, and at no cost. */
  public static boolean refusesTakenNames(FileSystem fileSystem, Path path) throws IOException {
    return ObjectStream.serves(fileSystem, path)
        ? ObjectStream.looksAtClose(fileSystem, path)
        : HdfsStream.serves(fileSystem);
  }

  public static boolean isLocal(FileSystem fileSystem) {
    return "file".equals(fileSystem.getUri().getScheme());
  }

  /** Makes a folder with its parents, durable where Spark's own way would not make it so. */
  public static void makeFolder(FileSystem fileSystem, Path path, Configuration conf)
      throws IOException {
    if (isLocal(fileSystem)) {
      FileAttribute<?> permission = permission(FsPermission.getDirDefault(), conf);
      LocalFiles.makeFolder(LocalFiles.local(path), permission);
    }
  }

  /** As Hadoop would set it, with less where the process itself is to give less. */
  private static FileAttribute<?> permission(FsPermission permission, Configuration conf) {
    FsPermission umask = FsPermission.getUMask(conf);
    return PosixFilePermissions.asFileAttribute(
        PosixFilePermissions.fromString(permission.applyUMask(umask).toString()));
  }
}
