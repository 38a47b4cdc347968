package io.holdfast.spark.store;

import io.holdfast.spark.Native;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.RecordType$;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.NextIterator;
import scala.Enumeration;
import scala.Tuple4;

/** The changes of a range of commits in one column family; see {@link Native#changes}. */
public final class ChangeFeed
    extends NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>> {
  private static final int HEADER_BYTES = 9;

  private final StoreContext context;
  private final NativeStore nativeStore;
  private final FamilySpec family;

  /** 0 for a family that never had an entry. */
  private final int number;

  private final long lastVersion;

  /** The version of {@link #changes}. */
  private long version;

  private byte[] changes = new byte[0];
  private int position;

  public ChangeFeed(
      StoreContext context,
      NativeStore nativeStore,
      FamilySpec family,
      int number,
      long firstVersion,
      long lastVersion) {
    this.context = context;
    this.nativeStore = nativeStore;
    this.family = family;
    this.number = number;
    this.lastVersion = lastVersion;
    version = firstVersion - 1;
  }

  @Override
  public Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object> getNext() {
    while (position == changes.length) {
      if (version == lastVersion || number == 0) {
        finished_$eq(true);
        return null;
      }
      version++;
      changes =
          nativeStore.changes(version, context.idsOfVersion(version), number, family.options());
      position = 0;
    }
    int kind = changes[position];
    long lengths = Platform.BYTE_ARRAY_OFFSET + position + 1L;
    int keyBytes = Platform.getInt(changes, lengths);
    int valueBytes = Platform.getInt(changes, lengths + 4);
    byte[] key = Bytes.slice(changes, position + HEADER_BYTES, keyBytes);
    byte[] value = Bytes.slice(changes, position + HEADER_BYTES + keyBytes, valueBytes);
    position += HEADER_BYTES + keyBytes + valueBytes;
    // Batch N makes version N + 1 of the state; the reader shows batches.
    // Rows are new ones: the reader keeps them.
    return new Tuple4<>(
        type(kind), family.key().decode(key), valueRow(kind, key, value), version - 1);
  }

  private static Enumeration.Value type(int kind) {
    return switch (kind) {
      case Native.CHANGE_REMOVE -> RecordType$.MODULE$.DELETE_RECORD();
      case Native.CHANGE_APPEND -> RecordType$.MODULE$.MERGE_RECORD();
      default -> RecordType$.MODULE$.PUT_RECORD();
    };
  }

  private UnsafeRow valueRow(int kind, byte[] key, byte[] stored) {
    if (kind == Native.CHANGE_REMOVE) {
      return null;
    }
    byte[] value = context.checksums == null ? stored : context.checksums.open(key, stored);
    return family.value().decode(value);
  }

  @Override
  public void close() {
    nativeStore.releaseOutsideTask();
  }
}
