package io.holdfast.spark.executor;

import io.holdfast.spark.sparklog.CommitLog;
import java.lang.ref.SoftReference;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;

/**
 * Entries of the commit log for the tasks of one stage of Spark. A state reader has a task for
 * every partition, and all need the same entries, so an executor reads them once.
 *
 * <p>Entries are immutable, but a user may delete a checkpoint and begin it again under the same
 * path. So two stages do not share entries.
 */
public final class CommitEntries {
  /**
   * More than Spark retains by default. With 200 partitions of one store, all entries take about 5
   * MB, which the JVM may free.
   */
  private static final int MAX_ENTRIES = 128;

  private record Key(int stage, Path entry) {}

  /** Ids by partition. The entry used last is the last one. */
  private final Map<Key, SoftReference<Map<String, String[]>>> known =
      new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(
            Map.Entry<Key, SoftReference<Map<String, String[]>>> eldest) {
          return size() > MAX_ENTRIES;
        }
      };

  /** Ids of all stores of a partition in the entry that made a version. */
  public String[] idsOfVersion(
      String stateLocation, long operator, int partition, long version, Configuration conf) {
    Path entry = CommitLog.entryOf(stateLocation, version);
    TaskContext task = TaskContext.get();
    Map<String, String[]> ids =
        task == null ? read(entry, conf) : ofStage(task.stageId(), entry, conf);
    return ids.getOrDefault(operator + "/" + partition, new String[0]).clone();
  }

  // Reads under the lock, because the other tasks of the stage would read the same entry.
  private synchronized Map<String, String[]> ofStage(int stage, Path entry, Configuration conf) {
    Key key = new Key(stage, entry);
    SoftReference<Map<String, String[]>> kept = known.get(key);
    Map<String, String[]> ids = kept == null ? null : kept.get();
    if (ids == null) {
      ids = read(entry, conf);
      known.put(key, new SoftReference<>(ids));
    }
    return ids;
  }

  private static Map<String, String[]> read(Path entry, Configuration conf) {
    return CommitLog.read(entry, conf).stream()
        .collect(
            Collectors.groupingBy(
                CommitLog.StoreId::partition,
                Collectors.collectingAndThen(Collectors.toList(), CommitEntries::ids)));
  }

  private static String[] ids(List<CommitLog.StoreId> stores) {
    return stores.stream().map(CommitLog.StoreId::id).toArray(String[]::new);
  }
}
