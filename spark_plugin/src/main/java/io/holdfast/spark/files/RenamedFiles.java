package io.holdfast.spark.files;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.EnumSet;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileContext;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.UnsupportedFileSystemException;
import org.apache.hadoop.hdfs.client.HdfsDataOutputStream;

/** HDFS, and what is like it: a file is written under a name of its own and renamed. */
final class RenamedFiles extends AtomicFiles {
  /** The user's output: erasure-coded where the user's folder is, and then as durable as Spark's. */
  private static final EnumSet<CreateFlag> AS_THE_FOLDER_SAYS =
      EnumSet.of(CreateFlag.CREATE, CreateFlag.SYNC_BLOCK);

  /** Whose rename takes a free name only; null for a scheme that Hadoop has none for. */
  private final FileContext context;

  RenamedFiles(FileSystem fileSystem, Configuration conf) throws IOException {
    super(fileSystem);
    context = contextOf(fileSystem, conf);
  }

  private static FileContext contextOf(FileSystem fileSystem, Configuration conf)
      throws IOException {
    try {
      return FileContext.getFileContext(fileSystem.getUri(), conf);
    } catch (UnsupportedFileSystemException none) {
      return null;
    }
  }

  @Override
  void write(Path path, Content content, boolean replace) throws IOException {
    write(NewFiles.temporary(path), path, content, replace, true);
  }

  @Override
  boolean writesThrough() {
    // Without it a rename takes several steps, and a folder may be deleted between them.
    return context != null;
  }

  @Override
  void writeThrough(Path folder, Path path, Content content, boolean replace) throws IOException {
    write(new Path(folder, UUID.randomUUID() + ".tmp"), path, content, replace, false);
  }

  private void write(
      Path temporary, Path path, Content content, boolean replace, boolean withParents)
      throws IOException {
    writeOwn(temporary, content, NewFiles.DURABLE, withParents);
    try {
      renameWithParents(temporary, path, replace);
    } catch (IOException | RuntimeException e) {
      delete(temporary, e);
      throw e;
    }
  }

  @Override
  void writeOwn(Path path, Content content) throws IOException {
    writeOwn(path, content, AS_THE_FOLDER_SAYS, true);
  }

  private void writeOwn(
      Path path, Content content, EnumSet<CreateFlag> flags, boolean withParents)
      throws IOException {
    FSDataOutputStream out = NewFiles.create(fileSystem, path, flags, withParents);
    try {
      content.writeTo(out);
      // HDFS syncs every block when it ends, as it was asked to when the file was created: a request
      // to the name node less. Elsewhere closing alone may leave the last block in memory.
      if (!(out instanceof HdfsDataOutputStream)
          && out.hasCapability(StreamCapabilities.HSYNC)) {
        out.hsync();
      }
      out.close();
    } catch (IOException | RuntimeException e) {
      try {
        out.close();
      } catch (IOException | RuntimeException suppressed) {
        e.addSuppressed(suppressed);
      }
      delete(path, e);
      throw e;
    }
  }

  private void delete(Path path, Exception because) {
    try {
      fileSystem.delete(path, false);
    } catch (IOException | RuntimeException suppressed) {
      because.addSuppressed(suppressed);
    }
  }

  @Override
  void renameNew(Path from, Path to) throws IOException {
    renameWithParents(from, to, false);
  }

  private void renameWithParents(Path from, Path to, boolean replace) throws IOException {
    try {
      rename(from, to, replace);
    } catch (FileNotFoundException e) {
      // Either of them may be missing, the file or the folder it goes to.
      if (!fileSystem.exists(from) || fileSystem.exists(to.getParent())) {
        throw e;
      }
      fileSystem.mkdirs(to.getParent());
      rename(from, to, replace);
    }
  }

  @Override
  boolean leavesBothNames() {
    return false;
  }

  private void rename(Path from, Path to, boolean replace) throws IOException {
    if (context != null) {
      context.rename(from, to, replace ? Options.Rename.OVERWRITE : Options.Rename.NONE);
      return;
    }
    // As Spark does it where nothing better is known: two steps, of which other processes may see
    // the first.
    if (fileSystem.exists(to)) {
      if (!replace) {
        throw new FileAlreadyExistsException(to + " is there");
      }
      fileSystem.delete(to, false);
    }
    if (fileSystem.rename(from, to)) {
      return;
    }
    if (!fileSystem.exists(from)) {
      throw new FileNotFoundException(from + " is not there");
    }
    if (fileSystem.exists(to)) {
      throw new FileAlreadyExistsException(to + " is there");
    }
    if (!fileSystem.exists(to.getParent())) {
      throw new FileNotFoundException(to.getParent() + " is not there");
    }
    throw new IOException(
        from + " was not renamed to " + to + ": the file system does not say why");
  }
}
