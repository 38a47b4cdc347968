package io.holdfast.spark.isolation.task;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.executor.HoldfastExecutor;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.minor.StoreNames;
import io.holdfast.spark.store.NativeStore;
import java.io.Serializable;
import java.util.List;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.internal.SQLConf;
import scala.jdk.javaapi.CollectionConverters;

/** A task's way to the stores of an operator. Spark's provider would load the state. */
public record StoreAccess(String root, UUID run, long operator, List<String> names)
    implements Serializable {
  public static StoreAccess of(StateStoreWriter operator) {
    StatefulOperatorStateInfo state = operator.stateInfo().get();
    return new StoreAccess(
        state.checkpointLocation(),
        state.queryRunId(),
        state.operatorId(),
        List.copyOf(StoreNames.of(operator)));
  }

  StateStoreId id(int partition, String name) {
    return new StateStoreId(root, operator, partition, name);
  }

  /** Spark's settings of the query, which each task receives. */
  static StateStoreConf conf() {
    return new StateStoreConf(SQLConf.get(), scala.collection.immutable.Map$.MODULE$.empty());
  }

  /** Only this store of a partition has the pending input. */
  String first() {
    return names.get(0);
  }

  NativeStore open(int partition, String name, Configuration hadoopConf) {
    HoldfastConf conf = new HoldfastConf(CollectionConverters.asJava(conf().sqlConfs()));
    SegmentFolder folder = SegmentFolder.of(root, hadoopConf);
    NativeStore store =
        new NativeStore(
            new NativeStore.Identity(
                Long.toString(operator), Integer.toString(partition), name, false, 0),
            new NativeStore.Settings(
                () -> HoldfastExecutor.running().stores().acquire(folder, conf, run),
                // No version is opened.
                1,
                Integer.MAX_VALUE,
                false,
                version -> {}));
    store.acquire();
    // The store remains open until the task ends.
    store.close();
    return store;
  }
}
