package io.holdfast.spark.moves;

import io.holdfast.spark.UnsupportedStateException;
import java.util.HashSet;
import java.util.List;
import java.util.Set;
import java.util.UUID;
import java.util.function.BiConsumer;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.InMemoryStateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateSchemaProvider;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.StateStoreProviderId;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** Stores of any provider, opened to read all of their rows or to write them. */
final class SourceStores {
  /** Takes a row, which is only valid during the call. */
  interface RowTaker {
    /**
     * @param first whether it is the first value of its key. Others follow it.
     */
    void take(Operator.Family family, boolean first, UnsafeRow key, UnsafeRow value);
  }

  private SourceStores() {}

  /**
   * Makes a provider for a store of an operator.
   *
   * @param state the folder of the state
   * @param number of the store
   * @param run id of the run of a query, or in its place
   */
  static StateStoreProvider provider(
      String state,
      Operator operator,
      int number,
      int partition,
      StateStoreConf conf,
      Configuration hadoop,
      UUID run) {
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
        new Configuration(hadoop),
        false,
        schemas);
  }

  /**
   * Opens a version. Providers with column families get to know their forms by a store for changes,
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

  /** Makes column families. */
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

  /** Gives all rows of a store. */
  static void rows(ReadStateStore store, Operator.Store form, RowTaker taker) {
    KeyCount keys = new KeyCount();
    for (Operator.Family family : form.families()) {
      UnsafeRow[] last = new UnsafeRow[1];
      rows(
          store,
          family,
          (key, value) -> {
            boolean first = !family.severalValues() || !key.equals(last[0]);
            if (first) {
              last[0] = family.severalValues() ? key.copy() : null;
              keys.add(family);
            }
            taker.take(family, first, key, value);
          });
    }
    keys.require(store);
  }

  /** Puts a row into a store. */
  static void put(
      StateStore store, Operator.Family family, boolean first, UnsafeRow key, UnsafeRow value) {
    if (first) {
      store.put(key, value, family.name());
    } else {
      store.merge(key, value, family.name());
    }
  }

  private static void rows(
      ReadStateStore store, Operator.Family family, BiConsumer<UnsafeRow, UnsafeRow> take) {
    TaskContext task = TaskContext.get();
    String name = family.name();
    StateStoreIterator<UnsafeRowPair> pairs =
        family.severalValues() ? store.iteratorWithMultiValues(name) : // from-4.2
        store.iterator(name);
    try {
      while (pairs.hasNext()) {
        task.killTaskIfInterrupted();
        UnsafeRowPair pair = pairs.next();
        // until-4.1: if (family.severalValues()) {
        // until-4.1:   CollectionConverters.asJava(store.valuesIterator(pair.key(), name))
        // until-4.1:       .forEachRemaining(value -> take.accept(pair.key(), value));
        // until-4.1:   continue;
        // until-4.1: }
        take.accept(pair.key(), pair.value());
      }
    } finally {
      pairs.close();
    }
  }
}
