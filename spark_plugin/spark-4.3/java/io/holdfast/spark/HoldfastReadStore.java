package io.holdfast.spark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;
import scala.collection.immutable.Set;
import scala.jdk.javaapi.CollectionConverters;

/** One version of a store, for reading. */
final class HoldfastReadStore implements ReadStateStore {
  private final StoreContext context;
  private final TableHandle table;
  private final long version;
  private final long[] statsBefore;
  private final Map<String, StoreFamily> opened = new HashMap<>();

  /** The family of the last call: nearly all calls in a row are for the same one. */
  private StoreFamily last;

  private String lastName;

  /**
   * @param statsBefore counters of the table before this version was opened
   */
  HoldfastReadStore(StoreContext context, TableHandle table, long version, long[] statsBefore) {
    this.context = context;
    this.table = table;
    this.version = version;
    this.statsBefore = statsBefore;
  }

  long[] statsBefore() {
    return statsBefore;
  }

  /**
   * Starts changing this version.
   *
   * @param id of this version
   */
  StateStore write(Option<String> id) {
    try {
      table.begin();
      return new HoldfastStateStore(context, table, this, version, id);
    } catch (RuntimeException e) {
      table.releaseOutsideTask();
      throw e;
    }
  }

  @Override
  public String toString() {
    return "version " + version + " of " + table;
  }

  @Override
  public StateStoreId id() {
    return context.id;
  }

  @Override
  public long version() {
    return version;
  }

  StoreFamily family(String name) {
    if (!name.equals(lastName)) {
      last =
          opened.computeIfAbsent(
              name, key -> new StoreFamily(context, table, context.family(key)));
      lastName = name;
    }
    return last;
  }

  /** Makes later calls look the family up again. */
  void forget(String name) {
    opened.remove(name);
    lastName = null;
  }

  @Override
  public UnsafeRow get(UnsafeRow key, String columnFamily) {
    return family(columnFamily).get(key);
  }

  @Override
  public boolean keyExists(UnsafeRow key, String columnFamily) {
    return family(columnFamily).contains(key);
  }

  @Override
  public Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String columnFamily) {
    return family(columnFamily).values(key);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iterator(String columnFamily) {
    return family(columnFamily).range(null, null, false);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String columnFamily) {
    return family(columnFamily).range(null, null, true);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String columnFamily) {
    return family(columnFamily).prefix(prefix, false);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(
      UnsafeRow prefix, String columnFamily) {
    return family(columnFamily).prefix(prefix, true);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> rangeScan(
      Option<UnsafeRow> from, Option<UnsafeRow> to, String columnFamily) {
    return family(columnFamily).range(orNull(from), orNull(to), false);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> rangeScanWithMultiValues(
      Option<UnsafeRow> from, Option<UnsafeRow> to, String columnFamily) {
    return family(columnFamily).range(orNull(from), orNull(to), true);
  }

  private static UnsafeRow orNull(Option<UnsafeRow> bound) {
    return bound.isDefined() ? bound.get() : null;
  }

  @Override
  public void registerColFamily(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec keySpec,
      boolean severalValues,
      boolean internal) {
    context.register(name, valueSchema, keySpec, severalValues, internal);
  }

  /** Families with entries, and those that Spark described. */
  @Override
  public Set<String> allColumnFamilyNames() {
    java.util.Set<String> names = new HashSet<>(context.families.keySet());
    names.addAll(Arrays.asList(table.familyNames()));
    return CollectionConverters.asScala(names).toSet();
  }

  @Override
  public void abort() {
    release();
  }

  @Override
  public void release() {
    table.releaseOutsideTask();
  }
}
