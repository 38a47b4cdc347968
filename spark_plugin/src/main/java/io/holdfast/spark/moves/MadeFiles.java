package io.holdfast.spark.moves;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.storage.Storages;
import java.io.IOException;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.FileUtil;
import org.apache.hadoop.fs.Path;

/**
 * Moves the first version that one of Spark's providers made, in a folder of its own, to a store as
 * a later version. It depends on no older version: a provider begins with nothing there.
 */
record MadeFiles(FileSystem files, Path from, Path to, long version) {
  /** Moves the files of a partition. Replaces files of a command that was killed. */
  static void move(PartitionCopy.Task task, Configuration conf) {
    for (Operator.Store store : task.operator().stores()) {
      Path from = task.idOf(task.scratch(), store).storeCheckpointLocation();
      Path to = task.idOf(task.state(), store).storeCheckpointLocation();
      try {
        new MadeFiles(from.getFileSystem(conf), from, to, task.made()).move();
      } catch (IOException e) {
        throw new HoldfastException("Cannot move " + from + " to " + to, e);
      }
    }
  }

  private void move() throws IOException {
    // Files that the version names are moved before it.
    for (String shared : new String[] {"SSTs", "logs"}) {
      for (Path file : listed(new Path(from, shared))) {
        rename(file, new Path(new Path(to, shared), file.getName()));
      }
    }
    for (Path file : listed(from)) {
      String name = file.getName();
      if (name.matches("1[._].*")) {
        // A file of changes that begins with nothing has the form of a snapshot.
        String ending = name.substring(1).replaceFirst("^\\.delta", ".snapshot");
        rename(file, new Path(to, version + ending));
      }
    }
  }

  private Path[] listed(Path folder) throws IOException {
    return Storages.list(files, folder)
        .filter(FileStatus::isFile)
        .map(FileStatus::getPath)
        .toArray(Path[]::new);
  }

  private void rename(Path file, Path target) throws IOException {
    files.mkdirs(target.getParent());
    files.delete(target, false);
    if (!renamed(file, target)) {
      throw new IOException("Cannot rename " + file + " to " + target);
    }
  }

  private boolean renamed(Path file, Path target) throws IOException {
    try {
      return files.rename(file, target);
    } catch (UnsupportedOperationException noRename) {
      return FileUtil.copy(files, file, files, target, false, files.getConf());
    }
  }
}
