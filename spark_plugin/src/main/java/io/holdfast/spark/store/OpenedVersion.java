package io.holdfast.spark.store;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Map;
import java.util.Objects;
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

/** One version of a store, as both stores that Spark knows read it. */
public abstract class OpenedVersion implements ReadStateStore {
  final StoreContext context;
  final NativeStore nativeStore;
  final Session session;
  private final long version;

  /** Counters of the table before this version was opened. */
  final TimedStats statsBefore;

  private final Map<String, StoreFamily> opened;

  /** Spark described these families to this store. They may have no entries. */
  private final java.util.Set<String> registered;

  OpenedVersion(
      StoreContext context, NativeStore nativeStore, long version, TimedStats statsBefore) {
    this.context = context;
    this.nativeStore = nativeStore;
    this.version = version;
    this.statsBefore = statsBefore;
    session = new Session(toString(), context.stamps.incrementAndGet());
    opened = new HashMap<>();
    registered = new HashSet<>();
  }

  /** Shares the session and the families of another store: Spark uses both in one task. */
  OpenedVersion(OpenedVersion other) {
    context = other.context;
    nativeStore = other.nativeStore;
    version = other.version;
    statsBefore = other.statsBefore;
    session = other.session;
    opened = other.opened;
    registered = other.registered;
  }

  @Override
  public String toString() {
    return "version " + version + " of " + nativeStore;
  }

  /** Keys now, without the keys of column families that Spark keeps for itself. */
  public long keys() {
    return nativeStore.stats().counters().keys();
  }

  @Override
  public StateStoreId id() {
    return context.id;
  }

  @Override
  public long version() {
    return version;
  }

  /** Returns the family to work on; Spark's errors name the {@code operation}. */
  final StoreFamily family(String operation, String name) {
    session.requireOpen();
    StoreFamily family = opened.get(name);
    if (family == null) {
      SparkErrors.requireFamilyName(operation, name, context.columns);
      FamilySpec spec = context.families.get(name);
      if (spec == null || !isThere(name)) {
        throw SparkErrors.missingFamily(operation, name);
      }
      family = new StoreFamily(context, nativeStore, spec);
      opened.put(name, family);
    }
    return family;
  }

  final StoreFamily family(String operation, String name, UnsafeRow key) {
    session.requireOpen();
    SparkErrors.verify(key != null, "Key cannot be null");
    return family(operation, name);
  }

  /** Families belong to versions: the provider may know one that this version does not have. */
  private boolean isThere(String name) {
    return name.equals(StateStore.DEFAULT_COL_FAMILY_NAME())
        || registered.contains(name)
        || nativeStore.findFamily(name) != 0;
  }

  final void forget(String name) {
    opened.remove(name);
    registered.remove(name);
  }

  @Override
  public UnsafeRow get(UnsafeRow key, String columnFamily) {
    return family("get", columnFamily, key).get(key);
  }

  public Iterator<UnsafeRow> multiGet(UnsafeRow[] keys, String columnFamily) {
    session.requireOpen();
    boolean allThere = keys != null && Arrays.stream(keys).allMatch(Objects::nonNull);
    SparkErrors.verify(allThere, "Keys cannot be null");
    return family("multiGet", columnFamily).getAll(keys);
  }

  public boolean keyExists(UnsafeRow key, String columnFamily) {
    return family("keyExists", columnFamily, key).contains(key);
  }

  @Override
  public Iterator<UnsafeRow> valuesIterator(UnsafeRow key, String columnFamily) {
    StoreFamily family = family("valuesIterator", columnFamily, key);
    family.requireLists("valuesIterator");
    return family.values(key);
  }

  /** The whole family. It may be read after a commit, too: complete mode does so. */
  @Override
  public StateStoreIterator<UnsafeRowPair> iterator(String columnFamily) {
    return family("iterator", columnFamily).range(null, null, false);
  }

  public StateStoreIterator<UnsafeRowPair> iteratorWithMultiValues(String columnFamily) {
    StoreFamily family = family("iteratorWithMultiValues", columnFamily);
    family.requireLists("iteratorWithMultiValues");
    return family.range(null, null, true);
  }

  @Override
  public StateStoreIterator<UnsafeRowPair> prefixScan(UnsafeRow prefix, String columnFamily) {
    StoreFamily family = family("prefixScan", columnFamily);
    SparkErrors.require(family.scansPrefixes(), "Prefix scan requires setting prefix key!");
    return family.prefix(prefix, false);
  }

  public StateStoreIterator<UnsafeRowPair> prefixScanWithMultiValues(
      UnsafeRow prefix, String columnFamily) {
    StoreFamily family = family("prefixScanWithMultiValues", columnFamily);
    SparkErrors.verify(
        family.scansPrefixes(),
        "prefixScanWithMultiValues requires encoder supporting prefix scan!");
    family.requireLists("prefixScanWithMultiValues");
    return family.prefix(prefix, true);
  }

  public StateStoreIterator<UnsafeRowPair> rangeScan(
      Option<UnsafeRow> from, Option<UnsafeRow> to, String columnFamily) {
    StoreFamily family = family("rangeScan", columnFamily);
    SparkErrors.require(
        family.scansRanges(), "Range scan requires an encoder that supports range scanning!");
    return family.range(from.getOrElse(() -> null), to.getOrElse(() -> null), false);
  }

  public StateStoreIterator<UnsafeRowPair> rangeScanWithMultiValues(
      Option<UnsafeRow> from, Option<UnsafeRow> to, String columnFamily) {
    StoreFamily family = family("rangeScanWithMultiValues", columnFamily);
    SparkErrors.require(
        family.scansRanges(),
        "Range scan with multiple values requires an encoder that supports range scanning!");
    family.requireLists("rangeScanWithMultiValues");
    return family.range(from.getOrElse(() -> null), to.getOrElse(() -> null), true);
  }

  public void registerColFamily(
      String name,
      StructType keySchema,
      StructType valueSchema,
      KeyStateEncoderSpec keySpec,
      boolean severalValues,
      boolean internal) {
    session.requireOpen();
    SparkErrors.requireNewFamilyName("create_col_family", name, context.columns, internal);
    context.register(name, valueSchema, keySpec, severalValues, internal);
    registered.add(name);
  }

  public Set<String> allColumnFamilyNames() {
    java.util.Set<String> names = new HashSet<>(registered);
    names.add(StateStore.DEFAULT_COL_FAMILY_NAME());
    names.addAll(Arrays.asList(nativeStore.familyNames()));
    return CollectionConverters.asScala(names).toSet();
  }
}
