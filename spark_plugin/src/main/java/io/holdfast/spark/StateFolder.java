package io.holdfast.spark;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Where the merged files of a query are. */
final class StateFolder {
  private StateFolder() {}

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
