package io.holdfast.spark;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/**
 * The empty folders {@code <checkpoint>/state/operator/partition}: Spark's state reader finds the
 * partitions of an operator by them. They are made once, with the first batch that has them.
 */
final class PartitionFolders {
  private final Map<Path, Set<String>> known = new HashMap<>();

  synchronized void create(Path state, List<CommitLog.StoreId> ids, Configuration conf)
      throws IOException {
    Set<String> present = known.computeIfAbsent(state, path -> new HashSet<>());
    Set<String> listed = new HashSet<>();
    FileSystem fileSystem = state.getFileSystem(conf);
    for (CommitLog.StoreId id : ids) {
      if (present.contains(id.partition())) {
        continue;
      }
      // A query that was restarted finds them all by one listing.
      if (listed.add(id.operator)) {
        addListed(fileSystem, state, id.operator, present);
      }
      if (!present.contains(id.partition())) {
        fileSystem.mkdirs(new Path(state, id.partition()));
        present.add(id.partition());
      }
    }
  }

  private static void addListed(
      FileSystem fileSystem, Path state, String operator, Set<String> present)
      throws IOException {
    try {
      for (FileStatus entry : fileSystem.listStatus(new Path(state, operator))) {
        if (entry.isDirectory()) {
          present.add(operator + "/" + entry.getPath().getName());
        }
      }
    } catch (FileNotFoundException e) {
      // The operator's first batch.
    }
  }
}
