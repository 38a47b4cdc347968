package io.holdfast.spark.sparklog;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.holdfast.spark.storage.AtomicStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.Random;
import java.util.stream.IntStream;
import org.apache.hadoop.fs.Path;
import org.junit.jupiter.api.Test;

class RecentEntriesTest {
  private final RecentEntries recent = new RecentEntries();

  private static Path entry(Object name) {
    return new Path("s3a://bucket/checkpoint/commits/" + name);
  }

  private byte[] write(Path path, byte[] content) throws IOException {
    ByteArrayOutputStream stored = new ByteArrayOutputStream();
    AtomicStream to =
        new AtomicStream(stored) {
          @Override
          protected void publish() {}

          @Override
          protected void discard() {}
        };
    try (AtomicStream out = recent.keeping(to, SparkFile.of(path))) {
      out.write(content);
    }
    return stored.toByteArray();
  }

  @Test
  void anEntryOf4MiBIsReadFromMemory() throws IOException {
    byte[] content = new byte[4 << 20];
    new Random(1).nextBytes(content);
    assertArrayEquals(content, write(entry(7), content));
    try (InputStream in = recent.open(entry(7)).orElseThrow()) {
      assertArrayEquals(content, in.readAllBytes());
    }
    assertTrue(recent.isNext(entry(8)));
  }

  @Test
  void theLastTenEntriesAreKept() throws IOException {
    for (int number = 0; number < 25; number++) {
      write(entry(number), new byte[] {(byte) number});
    }
    int[] kept = IntStream.range(0, 25).filter(number -> recent.has(entry(number))).toArray();
    assertArrayEquals(IntStream.range(15, 25).toArray(), kept);
  }

  @Test
  void anEntryThatRepeatsAllEarlierOnesIsNotKept() throws IOException {
    assertEquals(3, write(entry("9.compact"), new byte[3]).length);
    assertFalse(recent.has(entry("9.compact")));
    assertTrue(recent.isNext(entry(10)));
  }

  @Test
  void aDeletedEntryIsForgotten() throws IOException {
    write(entry(1), new byte[1]);
    recent.forget(entry(1));
    assertFalse(recent.has(entry(1)));
    assertFalse(recent.isNext(entry(2)));
  }
}
