package io.holdfast.spark.executor;

import io.holdfast.spark.files.CommitLog;
import java.lang.ref.SoftReference;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.stream.Collectors;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.TaskContext;

/**
 * Entries of the commit log as the tasks of one stage see them. A state reader has a task for every
 * partition, and each wants the same entries: they are read once per executor.
 *
 * <p>Entries are immutable, but a checkpoint may be deleted and begun again under the same path, so
 * what one stage read is not shown to another.
 */
public final class CommitEntries {
  /**
   * Above the number of batches that Spark retains by default. Of 200 partitions with one store, all
   * together are about 5 MB, which the JVM may take back.
   */
  private static final int MAX_ENTRIES = 128;

  private record Key(int stage, Path entry) {}

  /** Ids by partition, the entry used last at the end. */
  private final Map<Key, SoftReference<Map<String, String[]>>> known =
      new LinkedHashMap<>(16, 0.75f, true) {
        private static final long serialVersionUID = 1L;

        @Override
        protected boolean removeEldestEntry(
            Map.Entry<Key, SoftReference<Map<String, String[]>>> eldest) {
          return size() > MAX_ENTRIES;
        }
      };

  /**
   * Ids of all stores of a partition in the entry that made a version.
   *
   * @param stateLocation {@code <checkpoint>/state}
   */
  public String[] idsOfVersion(
      String stateLocation, long operator, int partition, long version, Configuration conf) {
    Path entry = CommitLog.entryOf(stateLocation, version);
    TaskContext task = TaskContext.get();
    Map<String, String[]> ids =
        task == null ? read(entry, conf) : ofStage(task.stageId(), entry, conf);
    return ids.getOrDefault(operator + "/" + partition, new String[0]).clone();
  }

  // Reads under the lock: the other tasks of the stage would read the same.
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
    return stores.stream().map(store -> store.id).toArray(String[]::new);
  }
}
