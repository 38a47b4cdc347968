package io.holdfast.spark.sparklog;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import org.apache.hadoop.fs.FSOutputSummer;
import org.apache.hadoop.util.DataChecksum;

/**
 * The checksums that Hadoop's local file system keeps for a file ({@code ChecksumFs}): a head with
 * the size of a piece in bytes, and the CRC-32 of each piece.
 */
final class Checksums extends FSOutputSummer {
  private static final byte[] HEAD = "crc\0".getBytes(StandardCharsets.US_ASCII);
  private static final int PIECE_BYTES = 512; // readers find it in the head

  private final OutputStream file;
  private final ByteArrayOutputStream checksums = new ByteArrayOutputStream();

  Checksums(OutputStream file) throws IOException {
    super(DataChecksum.newDataChecksum(DataChecksum.Type.CRC32, PIECE_BYTES));
    this.file = file;
    DataOutputStream head = new DataOutputStream(checksums);
    head.write(HEAD);
    head.writeInt(PIECE_BYTES);
  }

  @Override
  protected void writeChunk(
      byte[] bytes, int from, int length, byte[] sums, int sumsFrom, int sumsLength)
      throws IOException {
    file.write(bytes, from, length);
    checksums.write(sums, sumsFrom, sumsLength);
  }

  @Override
  protected void checkClosed() {}

  void finish() throws IOException {
    flushBuffer();
  }

  /** Writes all checksums, durably. */
  void write(Path path) throws IOException {
    try (FileOutputStream out = new FileOutputStream(path.toFile())) {
      checksums.writeTo(out);
      out.getFD().sync();
    }
  }
}
