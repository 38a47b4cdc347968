package io.holdfast.spark.storage;

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.util.Arrays;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * Gives new files their names on one kind of file system. A file with a name is whole and durable.
 * Before, readers see nothing of it.
 */
public abstract class Storage {
  private static final int COPY_BYTES = 1 << 20;

  public interface Content {
    void writeTo(OutputStream out) throws IOException;
  }

  public final FileSystem fileSystem;

  Storage(FileSystem fileSystem) {
    this.fileSystem = fileSystem;
  }

  /**
   * Makes a file with its parents.
   *
   * @param replace whether the file replaces another one, at once for readers
   * @throws org.apache.hadoop.fs.FileAlreadyExistsException if the name is taken; another process
   *     may take it at the same time
   */
  public abstract void write(Path path, Content content, boolean replace) throws IOException;

  /**
   * Makes a file with its parents, under a name that no other task uses. It is durable on return; a
   * crash may leave half of it.
   */
  public abstract void writeOwn(Path path, Content content) throws IOException;

  /** Returns true if {@link #writeThrough} works here. */
  public boolean writesThrough() {
    return true;
  }

  /**
   * Like {@link #write}, by way of a folder that has to exist. After the folder is deleted, writes
   * that began before cannot succeed, whatever their state.
   *
   * @throws java.io.FileNotFoundException if the folder is gone
   */
  public abstract void writeThrough(Path folder, Path path, Content content, boolean replace)
      throws IOException;

  /**
   * Gives a file or a folder another name, and makes the parents of the new name.
   *
   * @throws org.apache.hadoop.fs.FileAlreadyExistsException if the name is taken
   * @throws java.io.FileNotFoundException if there is nothing to rename
   */
  public abstract void renameNew(Path from, Path to) throws IOException;

  /** Returns true if a crash in {@link #renameNew} can leave a file under both names. */
  public boolean leavesBothNames() {
    return true;
  }

  public static Content contentOf(java.nio.file.Path local) {
    return out -> java.nio.file.Files.copy(local, out);
  }

  public final boolean same(Path left, Path right) throws IOException {
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
