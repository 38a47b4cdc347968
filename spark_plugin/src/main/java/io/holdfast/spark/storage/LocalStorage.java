package io.holdfast.spark.storage;

import java.io.File;
import java.io.IOException;
import java.nio.channels.Channels;
import java.nio.channels.FileChannel;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.StandardOpenOption;
import java.util.UUID;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;

/** Local files: a link takes only a free name. Hadoop lacks this, and makes nothing durable. */
public final class LocalStorage extends Storage {
  private final LocalModes modes;

  LocalStorage(FileSystem fileSystem) {
    super(fileSystem);
    modes = new LocalModes(fileSystem.getConf());
  }

  public static Path local(org.apache.hadoop.fs.Path path) {
    return new File(path.toUri().getPath()).toPath();
  }

  /** A name next to the file's own, while it is being written. */
  public static Path temporary(Path target) {
    return target.resolveSibling("." + target.getFileName() + "." + UUID.randomUUID() + ".tmp");
  }

  @Override
  public void write(org.apache.hadoop.fs.Path path, Content content, boolean replace)
      throws IOException {
    Path target = local(path);
    Path temporary = temporary(target);
    makeFolder(target.getParent(), modes);
    write(temporary, target, content, replace);
  }

  private void write(Path temporary, Path target, Content content, boolean replace)
      throws IOException {
    writeNew(temporary, content);
    try {
      makeFolder(target.getParent(), modes);
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
  public void writeOwn(org.apache.hadoop.fs.Path path, Content content) throws IOException {
    Path own = local(path);
    makeFolder(own.getParent(), modes);
    writeNew(own, content);
  }

  @Override
  public void writeThrough(
      org.apache.hadoop.fs.Path folder,
      org.apache.hadoop.fs.Path path,
      Content content,
      boolean replace)
      throws IOException {
    Path target = local(path);
    write(local(folder).resolve(UUID.randomUUID() + ".tmp"), target, content, replace);
  }

  private void writeNew(Path path, Content content) throws IOException {
    modes.createFile(path);
    try (FileChannel channel = FileChannel.open(path, StandardOpenOption.WRITE)) {
      content.writeTo(Channels.newOutputStream(channel));
      channel.force(true);
    } catch (IOException | RuntimeException e) {
      Files.deleteIfExists(path);
      throw e;
    }
    sync(path.getParent());
  }

  @Override
  public void renameNew(org.apache.hadoop.fs.Path fromPath, org.apache.hadoop.fs.Path toPath)
      throws IOException {
    Path from = local(fromPath);
    Path to = local(toPath);
    makeFolder(to.getParent(), modes);
    if (Files.isDirectory(from)) {
      // The system itself refuses a folder that is not empty.
      if (Files.exists(to)) {
        throw new FileAlreadyExistsException(to + " is there");
      }
      Files.move(from, to, StandardCopyOption.ATOMIC_MOVE);
    } else {
      Files.createLink(to, from);
      sync(to.getParent());
      // Another driver that is about to be fenced may do the same.
      Files.deleteIfExists(from);
      Files.deleteIfExists(checksumOf(from));
    }
    sync(to.getParent());
    sync(from.getParent());
  }

  /** The checksums that Hadoop keeps of a file that it wrote. They do not fit another content. */
  public static Path checksumOf(Path file) {
    return file.resolveSibling("." + file.getFileName() + ".crc");
  }

  public static void makeFolder(Path folder, LocalModes modes) throws IOException {
    if (Files.isDirectory(folder)) {
      return;
    }
    Path parent = folder.getParent();
    makeFolder(parent, modes);
    try {
      modes.createFolder(folder);
    } catch (java.nio.file.FileAlreadyExistsException e) {
      if (!Files.isDirectory(folder)) {
        throw e;
      }
    }
    sync(parent);
  }

  public static void sync(Path folder) throws IOException {
    try (FileChannel channel = FileChannel.open(folder, StandardOpenOption.READ)) {
      channel.force(true);
    }
  }
}
