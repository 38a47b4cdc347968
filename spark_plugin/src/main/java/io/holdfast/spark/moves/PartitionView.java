package io.holdfast.spark.moves;

import io.holdfast.spark.DamagedStateException;
import io.holdfast.spark.HoldfastException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.HashMap;
import java.util.Map;
import java.util.TreeMap;
import java.util.UUID;
import java.util.zip.CRC32;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;

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
public record PartitionView(
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
  public static PartitionView parse(String id) {
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
    return new PartitionView(
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

  /**
   * Puts the rows of this view into a store that is empty.
   *
   * @param id of the store
   */
  public void copyInto(
      StateStore target, StateStoreId id, StateStoreConf conf, Configuration hadoop, UUID run) {
    Path checkpoint = new Path(id.checkpointRootLocation()).getParent();
    Operator operator;
    try {
      operator = Operator.read(checkpoint, id.operatorId(), batch, hadoop);
    } catch (IOException e) {
      throw new HoldfastException("Cannot read what the state of " + id + " is", e);
    }
    int number = operator.numberOf(id.storeName());
    Operator.Store form = operator.stores().get(number);
    SourceStores.create(target, form);
    parents.forEach(
        (partition, parent) -> {
          StateStoreProvider source =
              SourceStores.provider(
                  id.checkpointRootLocation(), operator, number, partition, conf, hadoop, run);
          try {
            ReadStateStore reading = SourceStores.open(source, batch + 1, parent, form);
            try {
              copy(reading, partition, target, id.partitionId(), operator, form);
            } finally {
              reading.abort();
            }
          } finally {
            source.close();
          }
        });
  }

  private void copy(
      ReadStateStore reading,
      int parent,
      StateStore target,
      int partition,
      Operator operator,
      Operator.Store form) {
    Map<String, KeyHash> hashes = new HashMap<>();
    if (from != to) {
      form.families()
          .forEach(
              family ->
                  hashes.put(family.name(), new KeyHash(operator, form, family, from, to)));
    }
    SourceStores.rows(
        reading,
        form,
        (family, first, key, value) -> {
          if (from == to || hashes.get(family.name()).of(key, parent) == partition) {
            SourceStores.put(target, family, first, key, value);
          }
        });
  }
}
