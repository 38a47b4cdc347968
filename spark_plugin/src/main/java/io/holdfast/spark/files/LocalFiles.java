package io.holdfast.spark.files;

import java.io.File;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.nio.file.attribute.FileAttribute;
import java.util.UUID;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;

/**
 * Local files. A link takes a name only if it is free, which no call of Hadoop's does here; and
 * Hadoop's local files are not durable.
 */
final class LocalFiles extends AtomicFiles {
  LocalFiles(FileSystem fileSystem) {
    super(fileSystem);
  }

  static Path local(org.apache.hadoop.fs.Path path) {
    return new File(path.toUri().getPath()).toPath();
  }

  /** A name beside a file's own, for as long as it is being written. */
  static Path temporary(Path target) {
    return target.resolveSibling("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
  }

  @Override
  void write(org.apache.hadoop.fs.Path path, Content content, boolean replace) throws IOException {
    write(local(path), content, replace);
  }

  /** As {@link AtomicFiles#write}. */
  static void write(Path target, Content content, boolean replace) throws IOException {
    Path temporary = temporary(target);
    makeFolder(target.getParent());
    write(temporary, target, content, replace);
  }

  private static void write(Path temporary, Path target, Content content, boolean replace)
      throws IOException {
    writeNew(temporary, content);
    try {
      makeFolder(target.getParent());
      if (replace) {
        Files.deleteIfExists(checksumOf(target));
        Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE);
      } else {
        Files.createLink(target, temporary);
      }
      sync(target.getParent());
    } finally {
      Files.deleteIfExists(temporary);
    }
  }

  @Override
  void writeOwn(org.apache.hadoop.fs.Path path, Content content) throws IOException {
    writeOwn(local(path), content);
  }

  @Override
  boolean writesThrough() {
    return true;
  }

  @Override
  void writeThrough(
      org.apache.hadoop.fs.Path folder,
      org.apache.hadoop.fs.Path path,
      Content content,
      boolean replace)
      throws IOException {
    Path target = local(path);
    write(local(folder).resolve(UUID.randomUUID() + ".tmp"), target, content, replace);
  }

  private static void writeOwn(Path path, Content content) throws IOException {
    makeFolder(path.getParent());
    writeNew(path, content);
  }

  private static void writeNew(Path path, Content content) throws IOException {
    try (FileChannel channel =
        FileChannel.open(path, StandardOpenOption.CREATE_NEW, StandardOpenOption.WRITE)) {
      OutputStream out = Channels.newOutputStream(channel);
      content.writeTo(out);
      channel.force(true);
    } catch (java.nio.file.FileAlreadyExistsException e) {
      throw e;
    } catch (IOException | RuntimeException e) {
      Files.deleteIfExists(path);
      throw e;
    }
    sync(path.getParent());
  }

  @Override
  void renameNew(org.apache.hadoop.fs.Path fromPath, org.apache.hadoop.fs.Path toPath)
      throws IOException {
    Path from = local(fromPath);
    Path to = local(toPath);
    makeFolder(to.getParent());
    if (Files.isDirectory(from)) {
      // The system itself refuses a folder that is not empty.
      if (Files.exists(to)) {
        throw new FileAlreadyExistsException(to + " is there");
      }
      Files.move(from, to, StandardCopyOption.ATOMIC_MOVE);
    } else {
      Files.createLink(to, from);
      sync(to.getParent());
      // Another driver, which is about to be fenced, may do the same.
      Files.deleteIfExists(from);
      Files.deleteIfExists(checksumOf(from));
    }
    sync(to.getParent());
    sync(from.getParent());
  }

  @Override
  boolean leavesBothNames() {
    return true;
  }

  /** Where Hadoop keeps checksums of a file that it wrote: they are not those of another content. */
  static Path checksumOf(Path file) {
    return file.resolveSibling("." + file.getFileName() + ".crc");
  }

  static void makeFolder(Path folder, FileAttribute<?>... permission) throws IOException {
    if (Files.isDirectory(folder)) {
      return;
    }
    Path parent = folder.getParent();
    makeFolder(parent, permission);
    try {
      Files.createDirectory(folder, permission);
    } catch (java.nio.file.FileAlreadyExistsException e) {
      if (!Files.isDirectory(folder)) {
        throw e;
      }
    }
    sync(parent);
  }

  static void sync(Path folder) throws IOException {
    try (FileChannel channel = FileChannel.open(folder, StandardOpenOption.READ)) {
      channel.force(true);
    }
  }
}
