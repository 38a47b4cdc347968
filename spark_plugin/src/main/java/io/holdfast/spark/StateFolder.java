package io.holdfast.spark;

import java.io.IOException;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Where the merged files of a query are. */
final class StateFolder {
  private StateFolder() {}

  /**
   * Makes the empty folder that stands for a partition. Spark's state reader finds the partitions
   * of an operator by these folders.
   */
  static void createPartition(
      String stateLocation, long operator, int partition, Configuration conf) {
    java.nio.file.Path folder =
        java.nio.file.Path.of(of(stateLocation, conf))
            .resolveSibling(Long.toString(operator))
            .resolve(Integer.toString(partition));
    try {
      Files.createDirectories(folder);
    } catch (IOException e) {
      throw new HoldfastException("Cannot create the partition's folder " + folder, e);
    }
  }

  /** Local path of the folder below Spark's state location, {@code <checkpoint>/state}. */
  static String of(String stateLocation, Configuration conf) {
    Path path = new Path(stateLocation, HoldfastConf.STATE_FOLDER);
    try {
      Path qualified = path.getFileSystem(conf).makeQualified(path);
      if ("file".equals(qualified.toUri().getScheme())) {
        return qualified.toUri().getPath();
      }
      throw new UnsupportedStateException(
          "This Holdfast release keeps state on local file systems only (file:), found "
              + qualified
              + ". Use a checkpoint location on a file system mounted on all nodes.");
    } catch (IOException e) {
      throw new HoldfastException("Cannot resolve the state location " + stateLocation, e);
    }
  }
}
