package io.holdfast.spark.storage;

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

/** HDFS and similar file systems: a file is written under another name and renamed. */
final class RenamingStorage extends Storage {
  /** The user's output: erasure-coded if the folder is, and then as durable as Spark's output. */
  private static final EnumSet<CreateFlag> AS_THE_FOLDER_SAYS =
      EnumSet.of(CreateFlag.CREATE, CreateFlag.SYNC_BLOCK);

  /** Its rename takes free names only. Null for a scheme without a context in Hadoop. */
  private final FileContext context;

  RenamingStorage(FileSystem fileSystem, Configuration conf) throws IOException {
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
  public void write(Path path, Content content, boolean replace) throws IOException {
    write(NewFile.temporary(path), path, content, replace, true);
  }

  @Override
  public boolean writesThrough() {
    // Without a context a rename has several steps, and the folder may go between them.
    return context != null;
  }

  @Override
  public void writeThrough(Path folder, Path path, Content content, boolean replace)
      throws IOException {
    write(new Path(folder, UUID.randomUUID() + ".tmp"), path, content, replace, false);
  }

  private void write(
      Path temporary, Path path, Content content, boolean replace, boolean withParents)
      throws IOException {
    writeOwn(temporary, content, NewFile.DURABLE, withParents);
    try {
      renameWithParents(temporary, path, replace);
    } catch (IOException | RuntimeException e) {
      FileErrors.suppressed(e, () -> fileSystem.delete(temporary, false));
      throw e;
    }
  }

  @Override
  public void writeOwn(Path path, Content content) throws IOException {
    writeOwn(path, content, AS_THE_FOLDER_SAYS, true);
  }

  private void writeOwn(
      Path path, Content content, EnumSet<CreateFlag> flags, boolean withParents)
      throws IOException {
    FSDataOutputStream out = NewFile.create(fileSystem, path, flags, withParents);
    try {
      content.writeTo(out);
      // HDFS syncs every block at its end, by the file's flags, so a sync would only cost a request
      // to the name node. Elsewhere, after a mere close, the last block may be only in memory.
      if (!(out instanceof HdfsDataOutputStream) && out.hasCapability(StreamCapabilities.HSYNC)) {
        out.hsync();
      }
      out.close();
    } catch (IOException | RuntimeException e) {
      FileErrors.suppressed(e, out::close);
      FileErrors.suppressed(e, () -> fileSystem.delete(path, false));
      throw e;
    }
  }

  @Override
  public void renameNew(Path from, Path to) throws IOException {
    renameWithParents(from, to, false);
  }

  private void renameWithParents(Path from, Path to, boolean replace) throws IOException {
    try {
      rename(from, to, replace);
    } catch (FileNotFoundException e) {
      // The file may be missing, or the folder of its new name.
      if (!fileSystem.exists(from) || fileSystem.exists(to.getParent())) {
        throw e;
      }
      fileSystem.mkdirs(to.getParent());
      rename(from, to, replace);
    }
  }

  @Override
  public boolean leavesBothNames() {
    return false;
  }

  private void rename(Path from, Path to, boolean replace) throws IOException {
    if (context != null) {
      context.rename(from, to, replace ? Options.Rename.OVERWRITE : Options.Rename.NONE);
      return;
    }
    // Two steps, as in Spark's fallback. Other processes may see the state between them.
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
