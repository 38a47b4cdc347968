package io.holdfast.spark.files;

import java.io.IOException;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;

/**
 * A file of Spark's checkpoint on HDFS. It costs the name node what Spark's own way costs, which only
 * closes the file; here data nodes have it on their disks before it gets its name.
 */
final class HdfsStream extends TemporaryStream {
  private final DistributedFileSystem fileSystem;
  private final FSDataOutputStream out;
  private final Path temporary;
  private final Path path;
  private final boolean replace;

  private HdfsStream(
      DistributedFileSystem fileSystem,
      FSDataOutputStream out,
      Path temporary,
      Path path,
      boolean replace) {
    super(out);
    this.fileSystem = fileSystem;
    this.out = out;
    this.temporary = temporary;
    this.path = path;
    this.replace = replace;
  }

  static boolean serves(FileSystem fileSystem) {
    return fileSystem instanceof DistributedFileSystem;
  }

  /** Makes no folder, as Spark's own way: a checkpoint that was deleted does not come back in part. */
  static HdfsStream create(FileSystem fileSystem, Path path, boolean replace) throws IOException {
    Path temporary = NewFiles.temporary(path);
    FSDataOutputStream out = NewFiles.create(fileSystem, temporary, NewFiles.DURABLE, false);
    return new HdfsStream((DistributedFileSystem) fileSystem, out, temporary, path, replace);
  }

  @Override
  void publish() throws IOException {
    out.close();
    fileSystem.rename(
        temporary, path, replace ? Options.Rename.OVERWRITE : Options.Rename.NONE);
  }

  @Override
  void discard() throws IOException {
    try {
      out.close();
    } finally {
      fileSystem.delete(temporary, false);
    }
  }
}
