package io.holdfast.spark.files;

import java.io.BufferedOutputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.nio.file.attribute.FileAttribute;
import org.apache.hadoop.fs.FileAlreadyExistsException;

/**
 * A file of Spark's checkpoint on a local disk, durable before it gets its name. Beside it lies the
 * file with checksums that Hadoop makes as well, by which readers find damage.
 */
final class LocalStream extends TemporaryStream {
  private final Path target;
  private final Path temporary;
  private final FileOutputStream file;
  private final Checksums checksums;
  private final FileAttribute<?> permission;
  private final boolean replace;

  private LocalStream(
      Path target,
      Path temporary,
      FileOutputStream file,
      Checksums checksums,
      FileAttribute<?> permission,
      boolean replace) {
    super(new BufferedOutputStream(checksums));
    this.target = target;
    this.temporary = temporary;
    this.file = file;
    this.checksums = checksums;
    this.permission = permission;
    this.replace = replace;
  }

  /**
   * Makes no folder, as Spark's own way: a checkpoint that was deleted does not come back in part.
   *
   * @param permission the most that anyone may do with the file
   */
  static LocalStream create(Path target, FileAttribute<?> permission, boolean replace)
      throws IOException {
    Path temporary = LocalFiles.temporary(target);
    Files.createFile(temporary, permission);
    FileOutputStream file = new FileOutputStream(temporary.toFile());
    return new LocalStream(target, temporary, file, new Checksums(file), permission, replace);
  }

  @Override
  void publish() throws IOException {
    flush();
    file.getFD().sync();
    file.close();
    Path folder = target.getParent();
    Path ofChecksums = LocalFiles.temporary(target);
    try {
      Files.createFile(ofChecksums, permission);
      checksums.write(ofChecksums);
      if (replace) {
        // Without checksums for a moment, and never with those of another content.
        Files.deleteIfExists(LocalFiles.checksumOf(target));
        Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE);
      } else {
        takeName();
      }
      Files.move(ofChecksums, LocalFiles.checksumOf(target), StandardCopyOption.ATOMIC_MOVE);
      LocalFiles.sync(folder);
    } finally {
      Files.deleteIfExists(ofChecksums);
    }
    Files.deleteIfExists(temporary);
  }

  private void takeName() throws IOException {
    if (!Files.exists(target)) {
      // Of a file that somebody deleted by hand.
      Files.deleteIfExists(LocalFiles.checksumOf(target));
    }
    try {
      Files.createLink(target, temporary);
    } catch (java.nio.file.FileAlreadyExistsException e) {
      throw taken(e);
    } catch (UnsupportedOperationException | FileSystemException noLinks) {
      // As Spark's own way does it everywhere: two writers may both find the name free.
      if (Files.exists(target)) {
        throw taken(noLinks);
      }
      Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE);
    }
  }

  private FileAlreadyExistsException taken(Exception cause) {
    FileAlreadyExistsException taken = new FileAlreadyExistsException(target + " is there");
    taken.initCause(cause);
    return taken;
  }

  @Override
  void discard() throws IOException {
    try {
      file.close();
    } finally {
      Files.deleteIfExists(temporary);
    }
  }
}
