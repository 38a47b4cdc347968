package io.holdfast.spark.moves;

import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;

/** Rows of the stores of one partition, as bytes that go through a shuffle of Spark. */
final class RowChunks {
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
  private final DataOutputStream out = new DataOutputStream(bytes);

  int size() {
    return bytes.size();
  }

  /** Returns the bytes so far, and begins again. */
  byte[] take() {
    byte[] chunk = bytes.toByteArray();
    bytes.reset();
    return chunk;
  }

  /** Adds a row of the store with this number. All values of a key are in one chunk. */
  void add(int store, RowReader read) {
    try {
      out.writeShort(store);
      out.writeShort(read.number());
      out.writeBoolean(read.isFirst());
      for (UnsafeRow row : new UnsafeRow[] {read.key(), read.value()}) {
        out.writeInt(row.getSizeInBytes());
        out.write(row.getBytes());
      }
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }

  static void write(byte[] chunk, Operator operator, RowWriter[] stores) {
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(chunk))) {
      while (in.available() > 0) {
        int store = in.readShort();
        Operator.Family family = operator.stores().get(store).families().get(in.readShort());
        boolean first = in.readBoolean();
        UnsafeRow key = row(in, family.key().length());
        UnsafeRow value = row(in, family.value().length());
        stores[store].write(family, first, key, value);
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
