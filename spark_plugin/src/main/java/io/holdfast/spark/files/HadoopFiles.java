package io.holdfast.spark.files;

import io.holdfast.spark.DaemonThreads;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.EnumSet;
import java.util.List;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Future;
import java.util.concurrent.SynchronousQueue;
import java.util.concurrent.ThreadPoolExecutor;
import java.util.concurrent.TimeUnit;
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
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.hdfs.client.HdfsDataInputStream;

/**
 * A folder of merged files on any of Hadoop's file systems. The native side calls these methods by
 * name (rust/jni/src/hadoop.rs).
 */
public final class HadoopFiles {
  private static final long IDLE_THREAD_S = 10;

  private static final EnumSet<CreateFlag> SYNCED =
      EnumSet.of(CreateFlag.CREATE, CreateFlag.SHOULD_REPLICATE);

  /**
   * Of the user that this was made for. Threads of the native side call as the process's user, whom Hadoop would
   * give another one.
   */
  private final FileSystem fileSystem;
  private final Path folder;
  /** Files can be seen while they are written; only an open file knows its length then. */
  private final boolean seenWhileWritten;

  /**
   * Writes happen on threads of their own: Spark interrupts the threads of tasks, and a file
   * shared by many tasks must not break because one of them was cancelled in the middle of a write.
   */
  private final ExecutorService writers =
      new ThreadPoolExecutor(
          0,
          Integer.MAX_VALUE,
          IDLE_THREAD_S,
          TimeUnit.SECONDS,
          new SynchronousQueue<>(),
          DaemonThreads.named("holdfast-writer"));

  HadoopFiles(Path folder, Configuration conf) throws IOException {
    this.folder = folder;
    fileSystem = folder.getFileSystem(conf);
    seenWhileWritten =
        fileSystem.hasPathCapability(folder, CommonPathCapabilities.FS_APPEND);
  }

  /** A step that a cancelled task must not tear apart. */
  interface Step<T> {
    T run() throws IOException;
  }

  /** A name that is taken is refused: here or, where an object store can decide, at the end of the file. */
  HadoopOutput create(String name) throws IOException {
    Path path = new Path(folder, name);
    return new HadoopOutput(this, uninterrupted(() -> begin(path)));
  }

  private FSDataOutputStream begin(Path path) throws IOException {
    if (ObjectStream.looksAtClose(fileSystem, path)) {
      return ObjectStream.create(fileSystem, path, false);
    }
    return seenWhileWritten
        ? NewFiles.create(fileSystem, path, SYNCED, true)
        : fileSystem.createFile(path).overwrite(false).recursive().build();
  }

  /** Whether files are seen before they are finished; else they never change once they are seen. */
  boolean seenWhileWritten() {
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
    // With the status at hand an object store need not be asked again.
    return opened(randomly(path).withFileStatus(status), status.getLen());
  }

  /**
   * Opens a file of at least so many bytes, and no more of it. An object store is not asked: what is missing or
   * shorter fails the first read.
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
    return new HadoopInput(get(builder.build(), true), length);
  }

  private long visibleLength(FSDataInputStream in, Path path) throws IOException {
    // The name node learns the length of an HDFS file late; the open stream asked a data node.
    return in instanceof HdfsDataInputStream
        ? ((HdfsDataInputStream) in).getVisibleLength()
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

  /** Deletes files, between whose names are slashes; what is not there is deleted already. */
  void delete(String names) throws IOException {
    List<Path> paths = Stream.of(names.split("/")).map(name -> new Path(folder, name)).toList();
    Deletes.delete(fileSystem, paths);
  }

  /** The files of the folder, a line each: length, space, name. */
  String list() throws IOException {
    StringBuilder lines = new StringBuilder();
    try {
      RemoteIterator<FileStatus> entries = fileSystem.listStatusIterator(folder);
      while (entries.hasNext()) {
        FileStatus entry = entries.next();
        if (entry.isFile()) {
          lines.append(entry.getLen()).append(' ').append(entry.getPath().getName()).append('\n');
        }
      }
    } catch (FileNotFoundException e) {
      // The folder is made with the first file.
      return "";
    }
    return lines.toString();
  }

  /** Runs a step to its end, whatever happens to the calling thread meanwhile. */
  <T> T uninterrupted(Step<T> step) throws IOException {
    return get(writers.submit(step::run), false);
  }

  private static <T> T get(Future<T> future, boolean interruptible) throws IOException {
    boolean interrupted = false;
    try {
      while (true) {
        try {
          return future.get();
        } catch (InterruptedException e) {
          interrupted = true;
          if (interruptible) {
            throw new IOException("Interrupted while a file was opened", e);
          }
        }
      }
    } catch (ExecutionException e) {
      Throwable cause = e.getCause();
      if (cause instanceof IOException) {
        throw (IOException) cause;
      }
      throw new IOException(cause.toString(), cause);
    } finally {
      if (interrupted) {
        Thread.currentThread().interrupt();
      }
    }
  }
}
