package io.holdfast.spark.storage;

import java.io.IOException;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.fs.BulkDelete;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;

/** Calls of file systems that may be object stores. */
public final class ObjectStores {
  private ObjectStores() {}

  /** Returns true if files of this store are invisible until closed, and can be abandoned. */
  public static boolean serve(FileSystem fileSystem, Path path) throws IOException {
    return fileSystem.hasPathCapability(path, CommonPathCapabilities.ABORTABLE_STREAM);
  }

  /** Deletes files that exist. Throws the first failure; later files may not have been tried. */
  public static void delete(FileSystem fileSystem, Collection<Path> paths) throws IOException {
    List<Path> objects = new ArrayList<>();
    for (Path path : paths) {
      if (serve(fileSystem, path)) {
        objects.add(path);
      } else {
        fileSystem.delete(path, false);
      }
    }
    deleteObjects(fileSystem, objects);
  }

  /**
   * Deletes objects with as few requests as the store allows: none asks what they are, and none
   * makes a folder in their place.
   */
  private static void deleteObjects(FileSystem fileSystem, Collection<Path> objects)
      throws IOException {
    Map<Path, List<Path>> byFolder = new HashMap<>();
    objects.forEach(
        path -> byFolder.computeIfAbsent(path.getParent(), any -> new ArrayList<>()).add(path));
    for (Map.Entry<Path, List<Path>> folder : byFolder.entrySet()) {
      List<Path> paths = folder.getValue();
      try (BulkDelete bulk = fileSystem.createBulkDelete(folder.getKey())) {
        for (int from = 0; from < paths.size(); from += bulk.pageSize()) {
          int to = Math.min(from + bulk.pageSize(), paths.size());
          List<Map.Entry<Path, String>> failed = bulk.bulkDelete(paths.subList(from, to));
          if (!failed.isEmpty()) {
            throw new IOException(failed.size() + " objects were not deleted: " + failed.get(0));
          }
        }
      }
    }
  }
}
