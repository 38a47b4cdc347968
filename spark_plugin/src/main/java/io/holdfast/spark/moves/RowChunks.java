package io.holdfast.spark.moves;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.StateStore;

/** Rows of the stores of one partition, as bytes that go through a shuffle of Spark. */
final class RowChunks {
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
  private final DataOutputStream out = new DataOutputStream(bytes);

  int size() {
    return bytes.size();
  }

  /** Returns the bytes so far, and begins anew. */
  byte[] take() {
    byte[] chunk = bytes.toByteArray();
    bytes.reset();
    return chunk;
  }

  /**
   * Adds a row.
   *
   * @param store number of its store
   * @param family number of its column family
   * @param first whether it is the first value of its key. Others follow it in the same chunk.
   */
  void add(int store, int family, boolean first, UnsafeRow key, UnsafeRow value) {
    try {
      out.writeShort(store);
      out.writeShort(family);
      out.writeBoolean(first);
      for (UnsafeRow row : new UnsafeRow[] {key, value}) {
        out.writeInt(row.getSizeInBytes());
        out.write(row.getBytes());
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  /**
   * Puts the rows of a chunk into stores.
   *
   * @param keys counts them, by store
   */
  static void write(byte[] chunk, Operator operator, StateStore[] stores, KeyCount[] keys) {
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(chunk))) {
      while (in.available() > 0) {
        int store = in.readShort();
        Operator.Family family = operator.stores().get(store).families().get(in.readShort());
        boolean first = in.readBoolean();
        UnsafeRow key = row(in, family.key().length());
        UnsafeRow value = row(in, family.value().length());
        SourceStores.put(stores[store], family, first, key, value);
        if (first) {
          keys[store].add(family);
        }
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  private static UnsafeRow row(DataInputStream in, int fields) throws IOException {
    UnsafeRow row = new UnsafeRow(fields);
    int length = in.readInt();
    row.pointTo(in.readNBytes(length), length);
    return row;
  }
}
