package io.holdfast.spark.sparklog;

import io.holdfast.spark.Native;
import java.util.Map;
import java.util.TreeMap;
import java.util.stream.Stream;

/**
 * The id of a version whose rows are still in stores of other partitions, of an older number of
 * partitions. It has the rows of these stores whose keys belong to its partition. The next commit
 * of the store has the rows itself, so only one entry of the commit log names views.
 *
 * @param batch the batch whose state the other stores have
 * @param from the number of their partitions
 * @param to the number of partitions of this version
 * @param store the name of its store, and of the others
 * @param parents ids of the other stores, by partition
 */
public record ViewId(long batch, int from, int to, String store, Map<Integer, String> parents) {
  private static final String PREFIX = Native.viewPrefix();

  public static boolean is(String id) {
    return id != null && id.startsWith(PREFIX);
  }

  /** Throws {@link io.holdfast.spark.DamagedStateException} if the id is damaged. */
  public static ViewId parse(String id) {
    String[] parts = Native.readView(id);
    Map<Integer, String> parents = new TreeMap<>();
    for (int part = 4; part < parts.length; part += 2) {
      parents.put(Integer.valueOf(parts[part]), parts[part + 1]);
    }
    return new ViewId(
        Long.parseLong(parts[0]),
        Integer.parseInt(parts[1]),
        Integer.parseInt(parts[2]),
        parts[3],
        parents);
  }

  public String text() {
    String[] pairs =
        parents.entrySet().stream()
            .flatMap(parent -> Stream.of(parent.getKey().toString(), parent.getValue()))
            .toArray(String[]::new);
    return Native.viewId(batch, from, to, store, pairs);
  }
}
