package io.holdfast.spark.driver;

import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.storage.Storages;
import java.io.IOException;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.Future;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.util.functional.FutureIO;

/**
 * The empty folders {@code <checkpoint>/state/operator/partition}, by which Spark's state reader
 * finds the partitions of an operator. The first batch of a partition makes its folder.
 */
final class PartitionFolders {
  /** On an object store each folder takes a few round trips. */
  private static final int MAX_THREADS = 16;

  private final Map<Path, Set<String>> known = new HashMap<>();

  /** Called for batch 0: the checkpoint may be a new one under the path of an old one. */
  synchronized void forget(Path state) {
    known.remove(state);
  }

  synchronized void create(Path state, List<CommitLog.StoreId> ids, Configuration conf)
      throws IOException {
    Set<String> present = known.computeIfAbsent(state, path -> new HashSet<>());
    Set<String> missing = new HashSet<>();
    Set<String> operators = new HashSet<>();
    for (CommitLog.StoreId id : ids) {
      if (!present.contains(id.partition())) {
        missing.add(id.partition());
        operators.add(id.operator());
      }
    }
    if (missing.isEmpty()) {
      return;
    }
    FileSystem fileSystem = state.getFileSystem(conf);
    for (String operator : operators) {
      // After a restart one listing finds all folders.
      present.addAll(listed(fileSystem, state, operator));
    }
    missing.removeAll(present);
    makeAll(fileSystem, state, missing);
    present.addAll(missing);
  }

  private static Set<String> listed(FileSystem fileSystem, Path state, String operator)
      throws IOException {
    // The operator has no folder before its first batch.
    return Storages.list(fileSystem, new Path(state, operator))
        .filter(FileStatus::isDirectory)
        .map(entry -> operator + "/" + entry.getPath().getName())
        .collect(Collectors.toSet());
  }

  private static void makeAll(FileSystem fileSystem, Path state, Set<String> partitions)
      throws IOException {
    if (partitions.isEmpty()) {
      return;
    }
    ExecutorService threads =
        Executors.newFixedThreadPool(Math.min(MAX_THREADS, partitions.size()));
    try {
      List<Future<Boolean>> made = new ArrayList<>();
      for (String partition : partitions) {
        made.add(threads.submit(() -> fileSystem.mkdirs(new Path(state, partition))));
      }
      for (Future<Boolean> folder : made) {
        FutureIO.awaitFuture(folder);
      }
    } finally {
      threads.shutdownNow();
    }
  }
}
