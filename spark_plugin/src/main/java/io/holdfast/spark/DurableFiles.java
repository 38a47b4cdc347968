package io.holdfast.spark;

import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.ConcurrentHashMap;

/**
 * What the driver knows about the durability of state files, by folder. Makes the files of a batch
 * durable before the batch commits, and fails the batch if that is not possible.
 */
final class DurableFiles {
  private static final class Folder {
    /** Files an executor failed to sync: a later sync may succeed although bytes are gone. */
    final Set<String> lost = new HashSet<>();

    /** For the files that the last committed batch refers to: bytes known to be durable. */
    Map<String, Long> durableBytes = new HashMap<>();
  }

  private final Map<String, Folder> folders = new ConcurrentHashMap<>();

  void lost(LostFiles message) {
    Folder folder = folders.computeIfAbsent(message.dir, dir -> new Folder());
    synchronized (folder) {
      folder.lost.addAll(Set.of(message.names));
    }
  }

  /** Makes everything that the ids of a batch refer to survive a machine crash. */
  void makeDurable(String dir, String[] ids) {
    Folder folder = folders.computeIfAbsent(dir, key -> new Folder());
    synchronized (folder) {
      Map<String, Long> durable = new HashMap<>();
      for (String line : Native.referencedEnds(ids).lines().toList()) {
        int space = line.indexOf(' ');
        String file = line.substring(0, space);
        long end = Long.parseLong(line.substring(space + 1));
        long before = folder.durableBytes.getOrDefault(file, 0L);
        if (end > before) {
          if (folder.lost.contains(file)) {
            throw new HoldfastException(
                "The batch was not committed: state file "
                    + dir
                    + "/"
                    + file
                    + " could not be made durable from offset "
                    + before
                    + " to "
                    + end
                    + " (a sync failed on its executor). Check the disk and restart the query:"
                    + " Spark replays the batch into a new file.");
          }
          Native.syncFile(dir, file, end);
        }
        durable.put(file, Math.max(before, end));
      }
      folder.durableBytes = durable;
    }
  }
}
