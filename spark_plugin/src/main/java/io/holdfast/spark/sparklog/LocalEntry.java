package io.holdfast.spark.sparklog;

import io.holdfast.spark.storage.LocalModes;
import io.holdfast.spark.storage.LocalStorage;
import java.io.FileOutputStream;
import java.io.IOException;
import java.nio.file.FileSystemException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import org.apache.hadoop.fs.FileAlreadyExistsException;

/**
 * A file of Spark's checkpoint on a local disk, durable before it gets its name. Readers find
 * damage by a file with checksums, as Hadoop makes it.
 */
final class LocalEntry extends RenamedEntry {
  private final Path target;
  private final Path temporary;
  private final FileOutputStream file;
  private final Checksums checksums;
  private final LocalModes modes;
  private final boolean replace;

  private LocalEntry(
      Path target,
      Path temporary,
      FileOutputStream file,
      Checksums checksums,
      LocalModes modes,
      boolean replace) {
    super(checksums);
    this.target = target;
    this.temporary = temporary;
    this.file = file;
    this.checksums = checksums;
    this.modes = modes;
    this.replace = replace;
  }

  /** Makes no folder, like Spark: a part of a deleted checkpoint must not appear again. */
  static LocalEntry create(Path target, LocalModes modes, boolean replace) throws IOException {
    Path temporary = LocalStorage.temporary(target);
    modes.createFile(temporary);
    FileOutputStream file = new FileOutputStream(temporary.toFile());
    return new LocalEntry(target, temporary, file, new Checksums(file), modes, replace);
  }

  @Override
  void giveName() throws IOException {
    checksums.finish();
    file.getFD().sync();
    file.close();
    Path folder = target.getParent();
    Path ofChecksums = LocalStorage.temporary(target);
    try {
      modes.createFile(ofChecksums);
      checksums.write(ofChecksums);
      if (replace) {
        // For a moment the file has no checksums. It must never have checksums of another content.
        Files.deleteIfExists(LocalStorage.checksumOf(target));
        Files.move(temporary, target, StandardCopyOption.ATOMIC_MOVE);
      } else {
        takeName();
      }
      Files.move(ofChecksums, LocalStorage.checksumOf(target), StandardCopyOption.ATOMIC_MOVE);
      LocalStorage.sync(folder);
    } finally {
      Files.deleteIfExists(ofChecksums);
    }
    Files.deleteIfExists(temporary);
  }

  private void takeName() throws IOException {
    if (!Files.exists(target)) {
      // They belong to a file that a person deleted by hand.
      Files.deleteIfExists(LocalStorage.checksumOf(target));
    }
    try {
      Files.createLink(target, temporary);
    } catch (java.nio.file.FileAlreadyExistsException e) {
      throw taken(e);
    } catch (UnsupportedOperationException | FileSystemException noLinks) {
      // Two writers may both find the name free, as with Spark.
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
  void deleteRest() throws IOException {
    try {
      file.close();
    } finally {
      Files.deleteIfExists(temporary);
    }
  }
}
