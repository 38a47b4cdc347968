package io.holdfast.spark.storage;

import java.io.IOException;
import java.io.InputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Object stores: a file appears when it is closed, and nothing is renamed. */
final class ObjectStorage extends Storage {
  ObjectStorage(FileSystem fileSystem) {
    super(fileSystem);
  }

  @Override
  public void write(Path path, Content content, boolean replace) throws IOException {
    NewObject out = NewObject.create(fileSystem, path, replace);
    try {
      content.writeTo(out);
    } catch (IOException | RuntimeException e) {
      out.cancel();
      throw e;
    }
    out.close();
  }

  @Override
  public void writeOwn(Path path, Content content) throws IOException {
    write(path, content, false);
  }

  @Override
  public boolean writesThrough() {
    return false;
  }

  @Override
  public void writeThrough(Path folder, Path path, Content content, boolean replace) {
    throw new UnsupportedOperationException("object stores have no folders");
  }

  /** Copies the object. A rename is a copy as well, but would replace another object. */
  @Override
  public void renameNew(Path from, Path to) throws IOException {
    if (fileSystem.getFileStatus(from).isDirectory()) {
      throw new IOException(
          from + " is a folder: an object store renames single files only, not all files of a folder"
              + " at once");
    }
    if (fileSystem.exists(to)) {
      throw new FileAlreadyExistsException(to + " is there");
    }
    try (InputStream in = fileSystem.open(from)) {
      write(to, in::transferTo, false);
    }
    fileSystem.delete(from, false);
  }
}
