package io.holdfast.spark;

import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** The folder with the merged files of a query, {@code <checkpoint>/state/holdfast}. */
final class StateFolder {
  /** A local path, or the URI of a folder on another file system. */
  final String name;

  final Configuration conf;

  private StateFolder(String name, Configuration conf) {
    this.name = name;
    this.conf = conf;
  }

  /** The folder below Spark's state location, {@code <checkpoint>/state}. */
  static StateFolder of(String stateLocation, Configuration conf) {
    Path path = new Path(stateLocation, HoldfastConf.STATE_FOLDER);
    try {
      Path qualified = path.getFileSystem(conf).makeQualified(path);
      boolean local = "file".equals(qualified.toUri().getScheme());
      return new StateFolder(local ? qualified.toUri().getPath() : qualified.toString(), conf);
    } catch (IOException e) {
      throw new HoldfastException("Cannot resolve the state location " + stateLocation, e);
    }
  }

  /** The folder that another process calls {@code name}. */
  static StateFolder named(String name, Configuration conf) {
    return new StateFolder(name, conf);
  }

  boolean isLocal() {
    return name.startsWith("/");
  }

  /** The way to files that are not local; null for local ones, which the native side opens. */
  HadoopFiles files() {
    if (isLocal()) {
      return null;
    }
    try {
      return new HadoopFiles(new Path(name), conf);
    } catch (IOException e) {
      throw new HoldfastException("Cannot open the state folder " + name, e);
    }
  }
}
