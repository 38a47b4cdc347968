package io.holdfast.spark.sparklog;

import io.holdfast.spark.DamagedStateException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import java.util.TreeMap;
import java.util.zip.CRC32;

/**
 * Id of a version whose rows are still in stores of other partitions: those of an older number of
 * partitions. Its content are the rows of these stores whose keys belong to its partition. The next
 * commit of the store has them itself, so only one entry of the commit log names views.
 *
 * @param batch the batch whose state the other stores have
 * @param from the number of their partitions
 * @param to the number of partitions of this version
 * @param store the name of its store, and of the others
 * @param parents ids of the other stores, by partition
 */
public record ViewId(
    long batch, int from, int to, String store, Map<Integer, String> parents) {
  public static final String PREFIX = "hfv1-";

  /** Returns true if an id names a view. */
  public static boolean is(String id) {
    return id != null && id.startsWith(PREFIX);
  }

  /**
   * Reads an id.
   *
   * @throws DamagedStateException if it is none, or damaged
   */
  public static ViewId parse(String id) {
    String[] parts = id.substring(PREFIX.length()).split(":");
    String body = id.substring(0, Math.max(0, id.lastIndexOf(':')));
    if (parts.length < 7 || !parts[parts.length - 1].equals(checksum(body))) {
      throw new DamagedStateException(
          String.format(
              "State store checkpoint id \"%s\" is damaged: the commit log of this checkpoint is not"
                  + " as it was written",
              id));
    }
    Map<Integer, String> parents = new TreeMap<>();
    for (int part = 4; part < parts.length - 1; part += 2) {
      parents.put(Integer.valueOf(parts[part]), parts[part + 1]);
    }
    return new ViewId(
        Long.parseLong(parts[0]),
        Integer.parseInt(parts[1]),
        Integer.parseInt(parts[2]),
        parts[3],
        parents);
  }

  /** The id. */
  public String text() {
    StringBuilder text = new StringBuilder(PREFIX);
    text.append(batch).append(':').append(from).append(':').append(to);
    text.append(':').append(store);
    parents.forEach((partition, id) -> text.append(':').append(partition).append(':').append(id));
    return text + ":" + checksum(text.toString());
  }

  private static String checksum(String text) {
    CRC32 checksum = new CRC32();
    checksum.update(text.getBytes(StandardCharsets.UTF_8));
    return String.format("%08x", checksum.getValue());
  }
}
