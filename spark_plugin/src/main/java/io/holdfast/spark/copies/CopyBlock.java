package io.holdfast.spark.copies;

import io.holdfast.spark.merged.FileId;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.DataInputStream;
import java.io.DataOutputStream;
import java.io.IOException;
import java.io.UncheckedIOException;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.StreamBlockId;

/**
 * One copy: bytes of an unfinished file from an offset on. Spark's block manager keeps it under an id
 * that the driver can compute. Ids of two files may be equal, so the block names its file.
 */
record CopyBlock(String dir, FileId file, long offset, byte[] bytes) {
  private static final int NUMBER_BITS = 24; // of blocks of a file

  /** The id of a file's block with this number, which counts from 0. */
  static BlockId id(String dir, FileId file, int number) {
    return new StreamBlockId(stream(dir, file.term()), file.number() << NUMBER_BITS | number);
  }

  /** The part of ids that all blocks of a term have. */
  static int stream(String dir, long term) {
    return (31 * dir.hashCode() + Long.hashCode(term)) & Integer.MAX_VALUE;
  }

  byte[] encode() {
    ByteArrayOutputStream block = new ByteArrayOutputStream(bytes.length + 256);
    try (DataOutputStream out = new DataOutputStream(block)) {
      out.writeUTF(dir);
      out.writeLong(file.term());
      out.writeLong(file.number());
      out.writeLong(offset);
      out.write(bytes);
    } catch (IOException e) {
      throw new UncheckedIOException("arrays take all bytes", e);
    }
    return block.toByteArray();
  }

  static CopyBlock decode(byte[] block) throws IOException {
    try (DataInputStream in = new DataInputStream(new ByteArrayInputStream(block))) {
      String dir = in.readUTF();
      FileId file = new FileId(in.readLong(), in.readLong());
      return new CopyBlock(dir, file, in.readLong(), in.readAllBytes());
    }
  }
}
