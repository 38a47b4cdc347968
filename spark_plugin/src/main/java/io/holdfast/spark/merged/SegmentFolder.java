package io.holdfast.spark.merged;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * A folder of merged files: {@code <checkpoint>/state/holdfast} for the state stores of a query, or
 * the segments of a regional pipeline.
 */
public final class SegmentFolder {
  /** A local path, or the URI of a folder on another file system. */
  public final String name;

  public final Configuration conf;

  private SegmentFolder(String name, Configuration conf) {
    this.name = name;
    this.conf = conf;
  }

  /** The state location is Spark's, {@code <checkpoint>/state}. */
  public static SegmentFolder of(String stateLocation, Configuration conf) {
    return at(new Path(stateLocation, HoldfastConf.STATE_FOLDER).toString(), conf);
  }

  /** A path or URI. */
  public static SegmentFolder at(String location, Configuration conf) {
    Path path = new Path(location);
    try {
      Path qualified = path.getFileSystem(conf).makeQualified(path);
      boolean local = "file".equals(qualified.toUri().getScheme());
      return new SegmentFolder(local ? qualified.toUri().getPath() : qualified.toString(), conf);
    } catch (IOException e) {
      throw new HoldfastException("Cannot resolve the folder " + location, e);
    }
  }

  public static SegmentFolder named(String name, Configuration conf) {
    return new SegmentFolder(name, conf);
  }

  /** The folder in this one that only drivers use, for markers and catalogs. */
  public SegmentFolder ofDriver() {
    return named(name + "/driver", conf);
  }

  /** The folder in this one of the leases on its segments. */
  public SegmentFolder leases() {
    return named(name + "/leases", conf);
  }

  /** True if state stores use the folder. The driver deletes files that they do not need. */
  public boolean isOfStateStores() {
    return name.endsWith("/state/" + HoldfastConf.STATE_FOLDER);
  }

  public boolean isLocal() {
    return name.startsWith("/");
  }

  /** True on object stores: files appear when they are finished. */
  public boolean hidesOpenFiles() {
    return !isLocal() && !files().seenWhileWritten();
  }

  public Path path() {
    return isLocal() ? new Path("file", null, name) : new Path(name);
  }

  /** The way to remote files; null for local files, which the native side opens. */
  public HadoopFolder files() {
    if (isLocal()) {
      return null;
    }
    try {
      return new HadoopFolder(new Path(name), conf);
    } catch (IOException e) {
      throw new HoldfastException("Cannot open the state folder " + name, e);
    }
  }
}
