package io.holdfast.spark.sparklog;

import io.holdfast.spark.storage.AtomicStream;
import io.holdfast.spark.storage.NewFile;
import java.io.IOException;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Options;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.DistributedFileSystem;

/**
 * Files of Spark's checkpoint on HDFS. The data nodes have a file on their disks before it gets its
 * name. Spark only closes the file, which costs the name node as much.
 */
final class HdfsEntry {
  private HdfsEntry() {}

  static boolean serves(FileSystem fileSystem) {
    return fileSystem instanceof DistributedFileSystem;
  }

  /** Makes no folder, like Spark: a part of a deleted checkpoint must not appear again. */
  static AtomicStream create(FileSystem fileSystem, Path path, boolean replace) throws IOException {
    DistributedFileSystem hdfs = (DistributedFileSystem) fileSystem;
    Path temporary = NewFile.temporary(path);
    FSDataOutputStream file = NewFile.create(hdfs, temporary, NewFile.DURABLE, false);
    return new RenamedEntry(file) {
      @Override
      void giveName() throws IOException {
        file.close();
        hdfs.rename(temporary, path, replace ? Options.Rename.OVERWRITE : Options.Rename.NONE);
      }

      @Override
      void deleteRest() throws IOException {
        try {
          file.close();
        } finally {
          hdfs.delete(temporary, false);
        }
      }
    };
  }
}
