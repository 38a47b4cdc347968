package io.holdfast.spark.moves;

import io.holdfast.spark.UnsupportedStateException;
import java.io.Serializable;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.InMemoryStateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The stores of a checkpoint, in any provider, opened to read all of their rows or to write them.
 *
 * @param state the folder of the state
 * @param run id of the run of a query, or in its place
 */
record SourceStores(
    String state, StateStoreConf conf, SerializableConfiguration hadoop, UUID run)
    implements Serializable {
  StateStoreProvider provider(Operator operator, int number, int partition) {
    Operator.Store store = operator.stores().get(number);
    Operator.Family first = store.families().get(0);
    // The default one of several column families is empty, so any form will do.
    KeyStateEncoderSpec spec =
        store.columns() ? new NoPrefixKeyStateEncoderSpec(first.key()) : first.spec();
    Option<StateSchemaProvider> schemas =
        Option.apply(operator.schemas()).map(InMemoryStateSchemaProvider::new);
    StateStoreId id = new StateStoreId(state, operator.id(), partition, store.name());
    return StateStoreProvider$.MODULE$.createAndInit(
        new StateStoreProviderId(id, run),
        first.key(),
        first.value(),
        spec,
        store.columns(),
        conf,
        new Configuration(hadoop.value()),
        false,
        schemas);
  }

  /**
   * Opens a version. Providers with column families learn their forms from a store for changes,
   * which the caller aborts.
   */
  static ReadStateStore open(
      StateStoreProvider provider, long version, String id, Operator.Store form) {
    Option<String> checkpointId = Option.apply(id);
    if (!form.columns()) {
      return provider.getReadStore(version, checkpointId);
    }
    StateStore store = provider.getStore(version, checkpointId, false, false); // from-4.2
    // until-4.1: StateStore store = provider.getStore(version, checkpointId);
    try {
      requireKnown(store, form);
      create(store, form);
      return store;
    } catch (RuntimeException e) {
      store.abort();
      throw e;
    }
  }

  /** Opens the version without content that every provider begins with. */
  static StateStore first(StateStoreProvider provider) {
    return provider.getStore(0, Option.empty(), false, false); // from-4.2
    // until-4.1: return provider.getStore(0, Option.empty());
  }

  static void create(StateStore store, Operator.Store form) {
    for (Operator.Family family : form.families()) {
      if (form.columns() && !family.name().equals(StateStore.DEFAULT_COL_FAMILY_NAME())) {
        store.createColFamilyIfAbsent(
            family.name(),
            family.key(),
            family.value(),
            family.spec(),
            family.severalValues(),
            family.internal());
      }
    }
  }

  /** Earlier versions of Spark do not tell the names. */
  private static void requireKnown(StateStore store, Operator.Store form) {
    // until-4.1: Set<String> unknown = new HashSet<>();
    Set<String> unknown = // from-4.2
        new HashSet<>(CollectionConverters.asJava(store.allColumnFamilyNames())); // from-4.2
    form.families().forEach(family -> unknown.remove(family.name()));
    unknown.remove(StateStore.DEFAULT_COL_FAMILY_NAME());
    if (!unknown.isEmpty()) {
      throw new UnsupportedStateException(
          String.format(
              "%s has column families that Spark does not describe in the checkpoint: %s. Run one"
                  + " more batch of the query on its provider, with rows.",
              store.id(), List.copyOf(unknown)));
    }
  }
}
