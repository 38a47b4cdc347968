package io.holdfast.spark.files;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Arrays;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * How new files get their names on one kind of file system. What has a name is whole and durable:
 * readers see nothing of a file before.
 */
abstract class AtomicFiles {
  private static final int COPY_BYTES = 1 << 20;

  /** Writes the content of a file. */
  interface Content {
    void writeTo(OutputStream out) throws IOException;
  }

  final FileSystem fileSystem;

  AtomicFiles(FileSystem fileSystem) {
    this.fileSystem = fileSystem;
  }

  /**
   * Makes a file with its parents.
   *
   * @param replace whether a file that has the name is replaced, at once for readers
   * @throws org.apache.hadoop.fs.FileAlreadyExistsException if the name is taken, also by a file that
   *     another process makes at the same time
   */
  abstract void write(Path path, Content content, boolean replace) throws IOException;

  /**
   * Makes a file under a name that no other task uses, with its parents. Durable on return; what a
   * crash leaves may be half of it.
   */
  abstract void writeOwn(Path path, Content content) throws IOException;

  /** Whether {@link #writeThrough} does what it says here. */
  abstract boolean writesThrough();

  /**
   * As {@link #write}, by way of a folder that is not made: once that is deleted, whoever began such a
   * write before can not end it, at whatever point it is.
   *
   * @throws java.io.FileNotFoundException if the folder is gone
   */
  abstract void writeThrough(Path folder, Path path, Content content, boolean replace)
      throws IOException;

  /**
   * Gives a file or a folder another name, and makes the parents of that one.
   *
   * @throws org.apache.hadoop.fs.FileAlreadyExistsException if the name is taken
   * @throws java.io.FileNotFoundException if there is nothing to rename
   */
  abstract void renameNew(Path from, Path to) throws IOException;

  /** Whether a crash in the middle of {@link #renameNew} can leave a file under both names. */
  abstract boolean leavesBothNames();

  /** The content of a file of Hadoop's. */
  static Content contentOf(FileSystem fileSystem, Path path) {
    return out -> {
      try (InputStream in = fileSystem.open(path)) {
        in.transferTo(out);
      }
    };
  }

  /** The content of a local file. */
  static Content contentOf(java.nio.file.Path local) {
    return out -> java.nio.file.Files.copy(local, out);
  }

  /** Whether two files have the same bytes. */
  final boolean same(Path left, Path right) throws IOException {
    try (InputStream one = fileSystem.open(left);
        InputStream other = fileSystem.open(right)) {
      while (true) {
        byte[] chunk = one.readNBytes(COPY_BYTES);
        if (!Arrays.equals(chunk, other.readNBytes(COPY_BYTES))) {
          return false;
        }
        if (chunk.length == 0) {
          return true;
        }
      }
    }
  }
}
