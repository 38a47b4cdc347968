package io.holdfast.spark;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options.CreateFileOptionKeys;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.checkpointing.CheckpointFileManager.CancellableFSDataOutputStream;

/**
 * A file of the checkpoint on an object store: it appears whole when it is closed, and never when
 * it is cancelled. Spark's own way, a temporary file that is renamed, is a copy there, and two
 * drivers could both believe that they published.
 */
final class ObjectStream extends CancellableFSDataOutputStream {
  private final FSDataOutputStream out;
  private boolean ended;

  private ObjectStream(FSDataOutputStream out) {
    super(out);
    this.out = out;
  }

  /** Whether files of this store are invisible, and can be given up, until they are closed. */
  static boolean serves(Path path, Configuration conf) throws IOException {
    return path.getFileSystem(conf)
        .hasPathCapability(path, CommonPathCapabilities.ABORTABLE_STREAM);
  }

  static ObjectStream create(Path path, boolean overwrite, Configuration conf)
      throws IOException {
    FileSystem fileSystem = path.getFileSystem(conf);
    String conditional = CreateFileOptionKeys.FS_OPTION_CREATE_CONDITIONAL_OVERWRITE;
    FSDataOutputStreamBuilder<?, ?> builder = fileSystem.createFile(path).recursive();
    if (!overwrite && fileSystem.hasPathCapability(path, conditional)) {
      // The store itself decides, at close, which of two drivers was first.
      builder.must(conditional, true);
    } else {
      builder.overwrite(overwrite);
    }
    return new ObjectStream(builder.build());
  }

  @Override
  public void close() throws IOException {
    if (!ended) {
      ended = true;
      out.close();
    }
  }

  @Override
  public void cancel() {
    if (!ended) {
      ended = true;
      out.abort();
    }
  }
}
