package io.holdfast.spark.files;

import java.io.IOException;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Object stores: a file appears when it is closed, and nothing is renamed. */
final class ObjectFiles extends AtomicFiles {
  ObjectFiles(FileSystem fileSystem) {
    super(fileSystem);
  }

  @Override
  void write(Path path, Content content, boolean replace) throws IOException {
    ObjectStream out = ObjectStream.create(fileSystem, path, replace);
    try {
      content.writeTo(out);
    } catch (IOException | RuntimeException e) {
      out.cancel();
      throw e;
    }
    out.close();
  }

  @Override
  void writeOwn(Path path, Content content) throws IOException {
    write(path, content, false);
  }

  @Override
  boolean writesThrough() {
    return false;
  }

  @Override
  void writeThrough(Path folder, Path path, Content content, boolean replace) {
    throw new UnsupportedOperationException("object stores have no folders");
  }

  /** Copies the object: a rename is a copy in the store as well, but would replace what is there. */
  @Override
  void renameNew(Path from, Path to) throws IOException {
    if (fileSystem.getFileStatus(from).isDirectory()) {
      throw new IOException(
          from + " is a folder: an object store renames single files only, not all files of a folder"
              + " at once");
    }
    if (fileSystem.exists(to)) {
      throw new FileAlreadyExistsException(to + " is there");
    }
    write(to, contentOf(fileSystem, from), false);
    fileSystem.delete(from, false);
  }

  @Override
  boolean leavesBothNames() {
    return true;
  }
}
