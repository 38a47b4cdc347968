package io.holdfast.spark.files;

import java.io.ByteArrayOutputStream;
import java.io.DataOutputStream;
import java.io.FileOutputStream;
import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.nio.charset.StandardCharsets;
import java.nio.file.Path;
import java.util.zip.CRC32;

/**
 * The checksums of a file as Hadoop's local file system keeps them beside it ({@code ChecksumFs}):
 * after a head with the number of bytes of a piece, the CRC-32 of each piece.
 */
final class Checksums extends FilterOutputStream {
  private static final byte[] HEAD = "crc\0".getBytes(StandardCharsets.US_ASCII);

  /** Readers take it from the head. */
  private static final int PIECE_BYTES = 512;

  private final CRC32 ofPiece = new CRC32();
  private final ByteArrayOutputStream checksums = new ByteArrayOutputStream();
  private final DataOutputStream out = new DataOutputStream(checksums);
  private int inPiece;

  /**
   * @param file receives what is written
   */
  Checksums(OutputStream file) throws IOException {
    super(file);
    out.write(HEAD);
    out.writeInt(PIECE_BYTES);
  }

  @Override
  public void write(int b) throws IOException {
    write(new byte[] {(byte) b}, 0, 1);
  }

  @Override
  public void write(byte[] bytes, int from, int length) throws IOException {
    super.out.write(bytes, from, length);
    for (int at = from; at < from + length; ) {
      int taken = Math.min(PIECE_BYTES - inPiece, from + length - at);
      ofPiece.update(bytes, at, taken);
      at += taken;
      inPiece += taken;
      if (inPiece == PIECE_BYTES) {
        endPiece();
      }
    }
  }

  private void endPiece() throws IOException {
    out.writeInt((int) ofPiece.getValue());
    ofPiece.reset();
    inPiece = 0;
  }

  /** Writes the checksums of all that was written, durably. */
  void write(Path path) throws IOException {
    if (inPiece > 0) {
      endPiece();
    }
    try (FileOutputStream file = new FileOutputStream(path.toFile())) {
      checksums.writeTo(file);
      file.getFD().sync();
    }
  }
}
