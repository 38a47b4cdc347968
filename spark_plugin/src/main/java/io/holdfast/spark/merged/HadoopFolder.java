package io.holdfast.spark.merged;

import io.holdfast.spark.storage.NewFile;
import io.holdfast.spark.storage.NewObject;
import io.holdfast.spark.storage.ObjectStores;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.EnumSet;
import java.util.List;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FutureDataInputStreamBuilder;
import org.apache.hadoop.fs.Options.OpenFileOptions;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;
import org.apache.hadoop.util.functional.RemoteIterators;

/**
 * A folder of merged files on a Hadoop file system. The native side calls these methods by name
 * (rust/jni/src/hadoop.rs).
 */
public final class HadoopFolder {
  private static final EnumSet<CreateFlag> SYNCED =
      EnumSet.of(CreateFlag.CREATE, CreateFlag.SHOULD_REPLICATE);

  /**
   * The client of the user that this object was made for. Threads of the native side call as the
   * user of the process, and would get another client.
   */
  private final FileSystem fileSystem;
  private final Path folder;

  /** Files are visible while written, and only open files know their length; else none changes. */
  private final boolean seenWhileWritten;

  private final WriterThreads writers = new WriterThreads();

  HadoopFolder(Path folder, Configuration conf) throws IOException {
    this.folder = folder;
    fileSystem = folder.getFileSystem(conf);
    seenWhileWritten = fileSystem.hasPathCapability(folder, CommonPathCapabilities.FS_APPEND);
  }

  /** Another folder, by its URI. */
  HadoopFolder at(String uri) throws IOException {
    return new HadoopFolder(new Path(uri), fileSystem.getConf());
  }

  /** Refuses a taken name: here, or at the end of the file if an object store can decide then. */
  HadoopOutput create(String name) throws IOException {
    Path path = new Path(folder, name);
    return new HadoopOutput(writers, writers.run(() -> begin(path)));
  }

  private FSDataOutputStream begin(Path path) throws IOException {
    if (NewObject.looksAtClose(fileSystem, path)) {
      return NewObject.create(fileSystem, path, false);
    }
    return seenWhileWritten
        ? NewFile.create(fileSystem, path, SYNCED, true)
        : fileSystem.createFile(path).overwrite(false).recursive().build();
  }

  public boolean seenWhileWritten() {
    return seenWhileWritten;
  }

  HadoopInput open(String name) throws IOException {
    Path path = new Path(folder, name);
    if (seenWhileWritten) {
      FSDataInputStream in = fileSystem.open(path);
      try {
        return new HadoopInput(in, visibleLength(in, path));
      } catch (IOException | RuntimeException e) {
        in.close();
        throw e;
      }
    }
    FileStatus status = fileSystem.getFileStatus(path);
    // The status saves a request to an object store.
    return opened(randomly(path).withFileStatus(status), status.getLen());
  }

  /**
   * Opens the first {@code length} bytes of a file, without a request to an object store: if the
   * file is missing or shorter, the first read fails.
   */
  HadoopInput openKnown(String name, long length) throws IOException {
    if (seenWhileWritten) {
      return open(name);
    }
    FutureDataInputStreamBuilder builder = randomly(new Path(folder, name));
    return opened(
        builder.opt(OpenFileOptions.FS_OPTION_OPENFILE_LENGTH, Long.toString(length)), length);
  }

  private FutureDataInputStreamBuilder randomly(Path path) throws IOException {
    return fileSystem
        .openFile(path)
        .opt(
            OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY,
            OpenFileOptions.FS_OPTION_OPENFILE_READ_POLICY_RANDOM);
  }

  private static HadoopInput opened(FutureDataInputStreamBuilder builder, long length)
      throws IOException {
    return new HadoopInput(WriterThreads.get(builder.build(), true), length);
  }

  private long visibleLength(FSDataInputStream in, Path path) throws IOException {
    // The name node learns the length of an HDFS file late. The open stream asked a data node.
    return in instanceof HdfsDataInputStream hdfs
        ? hdfs.getVisibleLength()
        : fileSystem.getFileStatus(path).getLen();
  }

  long length(String name) throws IOException {
    if (!seenWhileWritten) {
      return fileSystem.getFileStatus(new Path(folder, name)).getLen();
    }
    HadoopInput in = open(name);
    try {
      return in.length();
    } finally {
      in.close();
    }
  }

  /** Deletes files that exist; slashes separate the names. */
  void delete(String names) throws IOException {
    List<Path> paths = Stream.of(names.split("/")).map(name -> new Path(folder, name)).toList();
    ObjectStores.delete(fileSystem, paths);
  }

  /** One file in a line: length, space, name. */
  String list() throws IOException {
    StringBuilder lines = new StringBuilder();
    try {
      RemoteIterators.foreach(
          fileSystem.listStatusIterator(folder),
          entry -> {
            if (entry.isFile()) {
              lines.append(entry.getLen() + " " + entry.getPath().getName() + "\n");
            }
          });
    } catch (FileNotFoundException e) {
      // The first file makes the folder.
      return "";
    }
    return lines.toString();
  }
}
