package io.holdfast.spark.store;

import io.holdfast.spark.Native;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.NoSuchElementException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;
import scala.runtime.BoxedUnit;

/** One column family of an opened version. Rows are reused, but not their bytes. */
final class StoreFamily {
  private static final int ABSENT = 0;

  private final StoreContext context;
  private final NativeStore nativeStore;
  private final FamilySpec spec;

  /** {@link #ABSENT} before its first entry. */
  private int number;

  StoreFamily(StoreContext context, NativeStore nativeStore, FamilySpec spec) {
    this.context = context;
    this.nativeStore = nativeStore;
    this.spec = spec;
    number = context.columns ? nativeStore.findFamily(spec.name()) : Native.ONLY_FAMILY;
  }

  /** Returns a new row: joins of state format 1 read the next row before they emit this one. */
  UnsafeRow get(UnsafeRow key) {
    byte[] value = value(key);
    if (value == null) {
      return null;
    }
    UnsafeRow row = spec.value().decode(value);
    context.validate(key, row);
    return row;
  }

  /** Values as they are now, in the order of the keys; null for a key without a value. */
  Iterator<UnsafeRow> getAll(UnsafeRow[] keys) {
    byte[][] values = new byte[keys.length][];
    for (int i = 0; i < keys.length; i++) {
      values[i] = value(keys[i]);
    }
    UnsafeRow row = spec.value().newRow();
    return CollectionConverters.asScala(Arrays.asList(values).iterator())
        .map(value -> value == null ? null : spec.value().decode(value, 0, value.length, row));
  }

  /** Null without such a key. */
  private byte[] value(UnsafeRow key) {
    if (number == ABSENT) {
      return null;
    }
    Bytes keyBytes = spec.key().encode(key);
    byte[] stored = nativeStore.get(number, keyBytes);
    if (stored == null || context.checksums == null) {
      return stored;
    }
    return context.checksums.open(keyBytes.toArray(), stored);
  }

  /** In the words of Spark's own provider. */
  void requireLists(String operation) {
    if (spec.hasSeveralValues()) {
      return;
    }
    String lead =
        switch (operation) {
          case "valuesIterator" -> "valuesIterator requires a encoder that supports";
          case "merge" -> "Merge operation requires an encoder which supports";
          case "put" -> "Multi-value put operation requires an encoder which supports";
          default -> "Multi-value iterator operation requires an encoder which supports";
        };
    throw new IllegalStateException(lead + " multiple values for a single key");
  }

  boolean scansPrefixes() {
    return spec.key().scansPrefixes();
  }

  boolean scansRanges() {
    return spec.key().scansRanges();
  }

  boolean contains(UnsafeRow key) {
    return number != ABSENT && nativeStore.contains(number, spec.key().encode(key));
  }

  void put(UnsafeRow key, UnsafeRow value) {
    make();
    Bytes keyBytes = spec.key().encode(key);
    nativeStore.put(number, keyBytes, stored(keyBytes, value));
  }

  void writeList(UnsafeRow key, boolean append, UnsafeRow... values) {
    make();
    Bytes keyBytes = spec.key().encode(key);
    List<Bytes> stored = new ArrayList<>(values.length);
    for (UnsafeRow value : values) {
      stored.add(stored(keyBytes, value));
    }
    nativeStore.writeList(number, keyBytes, stored, append);
  }

  void remove(UnsafeRow key) {
    if (number != ABSENT) {
      nativeStore.remove(number, spec.key().encode(key));
    }
  }

  Iterator<UnsafeRow> values(UnsafeRow key) {
    return new Entries(scan(Native.SCAN_VALUES_OF_KEY, spec.key().encode(key), null))
        .map(UnsafeRowPair::value);
  }

  /** An entry per key, or per value, from {@code from} (inclusive) to {@code to} (exclusive). */
  StateStoreIterator<UnsafeRowPair> range(UnsafeRow from, UnsafeRow to, boolean everyValue) {
    return iterator(
        scan(
            everyValue ? Native.SCAN_VALUES : Native.SCAN_KEYS,
            from == null ? null : spec.key().encode(from),
            to == null ? null : spec.key().encode(to)));
  }

  StateStoreIterator<UnsafeRowPair> prefix(UnsafeRow prefix, boolean everyValue) {
    return iterator(
        scan(
            everyValue ? Native.SCAN_PREFIX_VALUES : Native.SCAN_PREFIX,
            spec.key().encodePrefix(prefix),
            null));
  }

  private NativeStore.Scan scan(int what, Bytes from, Bytes to) {
    return number == ABSENT ? null : nativeStore.scan(number, what, from, to);
  }

  private StateStoreIterator<UnsafeRowPair> iterator(NativeStore.Scan scan) {
    return new StateStoreIterator<>(
        new Entries(scan),
        () -> {
          if (scan != null) {
            scan.close();
          }
          return BoxedUnit.UNIT;
        });
  }

  private Bytes stored(Bytes key, UnsafeRow value) {
    Bytes bytes = spec.value().encode(value);
    if (context.checksums == null) {
      return bytes;
    }
    return Bytes.of(context.checksums.seal(key.toArray(), bytes.toArray()));
  }

  /** A family without entries costs nothing, so its first entry makes it. */
  private void make() {
    if (number == ABSENT) {
      number = nativeStore.openFamily(spec.name(), spec.options());
    }
  }

  private final class Entries extends AbstractIterator<UnsafeRowPair>
      implements NativeStore.EntryReader {
    /** Null without entries. */
    private final NativeStore.Scan scan;

    private final UnsafeRow keyRow = spec.key().newRow();
    private final UnsafeRow valueRow = spec.value().newRow();
    private final UnsafeRowPair pair = new UnsafeRowPair(keyRow, valueRow);

    Entries(NativeStore.Scan scan) {
      this.scan = scan;
    }

    @Override
    public boolean hasNext() {
      return scan != null && scan.hasNext();
    }

    @Override
    public UnsafeRowPair next() {
      if (!hasNext()) {
        throw new NoSuchElementException("the scan is over");
      }
      scan.next(this);
      return pair;
    }

    @Override
    public void read(byte[] bytes, int keyAt, int keyBytes, int valueAt, int valueBytes) {
      UnsafeRow key = spec.key().decode(bytes, keyAt, keyBytes, keyRow);
      UnsafeRow value;
      if (context.checksums == null) {
        value = spec.value().decode(bytes, valueAt, valueBytes, valueRow);
      } else {
        byte[] opened =
            context.checksums.open(
                Bytes.slice(bytes, keyAt, keyBytes), Bytes.slice(bytes, valueAt, valueBytes));
        value = spec.value().decode(opened, 0, opened.length, valueRow);
      }
      pair.withRows(key, value);
      context.validate(key, value);
    }
  }
}
