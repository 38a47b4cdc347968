package io.holdfast.spark.moves;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.minor.OpensStores;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;

/** Copies one partition of an operator into another provider, with one row in memory. */
final class PartitionCopy {
  /**
   * One partition that a task of Spark copies.
   *
   * @param state the folder of the state
   * @param version of the state that is read
   * @param ids of this version, by store; null without ids
   * @param to settings of the other provider; null to only count the rows
   * @param made the version that is written
   * @param scratch a folder where Spark's providers write
   */
  record Task(
      String state,
      Operator operator,
      int partition,
      long version,
      String[] ids,
      StateStoreConf from,
      StateStoreConf to,
      long made,
      String scratch)
      implements Serializable {
    /** The root is the folder of the state, or the scratch folder. */
    StateStoreId idOf(String root, Operator.Store store) {
      return new StateStoreId(root, operator.id(), partition, store.name());
    }
  }

  /** The ids are of the version that was written, by store. */
  record Copied(long operator, List<String> ids, long rows, long bytes, long ms)
      implements Serializable {}

  private final Task task;
  private final SerializableConfiguration hadoop;
  private final UUID run;
  private long rows;
  private long bytes;

  /** The run takes the place of a query's run. */
  PartitionCopy(Task task, SerializableConfiguration hadoop, UUID run) {
    this.task = task;
    this.hadoop = hadoop;
    this.run = run;
  }

  Copied copy() {
    long begin = System.nanoTime();
    List<String> written = new ArrayList<>();
    List<Operator.Store> stores = task.operator.stores();
    for (int number = 0; number < stores.size(); number++) {
      String id = named(stores.get(number), task.ids == null ? null : task.ids[number]);
      if (id != null) {
        written.add(id);
      }
    }
    long ms = (System.nanoTime() - begin) / 1_000_000;
    return new Copied(task.operator.id(), written, rows, bytes, ms);
  }

  /** Names the state in errors, because errors of Spark's providers often name no file. */
  private String named(Operator.Store store, String id) {
    try {
      return copy(store, id);
    } catch (HoldfastException e) {
      throw e;
    } catch (Exception e) {
      // Spark throws checked exceptions that its interfaces do not declare.
      throw new HoldfastException(
          String.format(
              "Cannot copy version %d of %s (operator %d, %s)",
              task.version,
              task.idOf(task.state, store).storeCheckpointLocation(),
              task.operator.id(),
              task.operator.name()),
          e);
    }
  }

  /** Returns the id of the version that was written, or null without one. */
  private String copy(Operator.Store store, String id) {
    StateStoreProvider source = provider(task.state, store, task.from);
    try {
      ReadStateStore reading = SourceStores.open(source, task.version, id, store);
      try {
        if (task.to != null) {
          return write(store, reading);
        }
        copy(reading, store, null);
        return null;
      } finally {
        reading.abort();
      }
    } finally {
      source.close();
    }
  }

  /** Reads all rows, and writes them if there is a writer. */
  private void copy(ReadStateStore reading, Operator.Store store, RowWriter writer) {
    try (RowReader read = new RowReader(reading, store, Long.MAX_VALUE)) {
      while (read.next()) {
        rows++;
        bytes += read.bytes();
        if (writer != null) {
          read.writeTo(writer);
        }
      }
    }
  }

  private String write(Operator.Store store, ReadStateStore reading) {
    boolean holdfast = task.to.providerClass().equals(HoldfastConf.PROVIDER_CLASS);
    StateStoreProvider target = provider(holdfast ? task.state : task.scratch, store, task.to);
    try {
      StateStore writing =
          holdfast
              ? ((OpensStores) target).open(task.made - 1, Option.empty(), true)
              : SourceStores.first(target);
      try (RowWriter writer = new RowWriter(writing)) {
        SourceStores.create(writing, store);
        copy(reading, store, writer);
        return writer.commit();
      }
    } finally {
      target.close();
    }
  }

  private StateStoreProvider provider(String root, Operator.Store store, StateStoreConf conf) {
    int number = task.operator.stores().indexOf(store);
    return new SourceStores(root, conf, hadoop, run)
        .provider(task.operator, number, task.partition);
  }
}
