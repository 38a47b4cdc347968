package io.holdfast.spark.copies;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertNotEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;

import io.holdfast.spark.merged.FileId;
import java.io.IOException;
import java.util.Arrays;
import java.util.HashSet;
import java.util.Set;
import org.apache.spark.storage.BlockId;
import org.junit.jupiter.api.Test;

class CopyBlockTest {
  private static final long TERM = 1_700_000_000_000_000L;
  private static final FileId FILE = new FileId(TERM, 7);

  @Test
  void aBlockTellsItsFileAndItsPlaceInIt() throws IOException {
    CopyBlock block = new CopyBlock("s3a://bucket/ü/state", FILE, 1L << 33, new byte[] {1, 2, 3});
    CopyBlock read = CopyBlock.decode(block.encode());
    assertEquals(block.dir(), read.dir());
    assertEquals(FILE, read.file());
    assertEquals(1L << 33, read.offset());
    assertArrayEquals(block.bytes(), read.bytes());
  }

  @Test
  void aBlockThatIsCutBeforeItsBytesIsRefused() {
    byte[] whole = new CopyBlock("dir", FILE, 0, new byte[0]).encode();
    for (int length = 0; length < whole.length; length++) {
      byte[] cut = Arrays.copyOf(whole, length);
      assertThrows(IOException.class, () -> CopyBlock.decode(cut));
    }
  }

  @Test
  void blocksOfOneTermHaveIdsOfTheirOwn() {
    Set<BlockId> ids = new HashSet<>();
    for (long file = 1; file <= 20; file++) {
      for (int block = 0; block < 20; block++) {
        ids.add(CopyBlock.id("dir", new FileId(TERM, file), block));
      }
    }
    assertEquals(20 * 20, ids.size());
    assertNotEquals(CopyBlock.stream("dir", TERM), CopyBlock.stream("other", TERM));
    assertNotEquals(CopyBlock.stream("dir", TERM), CopyBlock.stream("dir", TERM + 1));
  }
}
