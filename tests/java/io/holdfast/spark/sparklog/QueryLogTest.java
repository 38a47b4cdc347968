package io.holdfast.spark.sparklog;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.holdfast.spark.DamagedStateException;
import io.holdfast.spark.HoldfastConf;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class QueryLogTest {
  private static final String PLAN = "v1\n{\"conf\":{\"a\":\"b\"}}\n{\"logOffset\":1}";
  private static final String COMMIT = "v1\n{\"nextBatchWatermarkMs\":0}";

  @TempDir private Path checkpoint;

  private void write(String log, long batch, String text) throws IOException {
    Path folder = Files.createDirectories(checkpoint.resolve(log));
    Files.writeString(folder.resolve(Long.toString(batch)), text);
  }

  private QueryLog read() throws IOException {
    return QueryLog.read("file:" + checkpoint, new Configuration());
  }

  @Test
  void aFolderWithoutBatchesHasNone() throws IOException {
    QueryLog log = read();
    assertEquals(-1, log.planned());
    assertEquals(-1, log.committed());
    assertNull(log.plan());
    assertFalse(log.hasState());
    assertEquals(checkpoint.toString(), log.shown());
  }

  @Test
  void theNewestEntriesAreRead() throws IOException {
    for (long batch = 8; batch <= 10; batch++) {
      write("offsets", batch, PLAN);
      write("commits", batch, COMMIT);
    }
    write("offsets", 11, new Batch(10, PLAN, COMMIT).planned(Map.of("a", "c")));
    Files.createDirectory(checkpoint.resolve("state"));
    QueryLog log = read();
    assertEquals(11, log.planned());
    assertEquals("c", log.plan().setting("a"));
    assertEquals(10, log.committed());
    assertEquals("b", log.newest().setting("a"));
    assertNull(log.before());
    assertTrue(log.hasState());
  }

  @Test
  void theBatchBeforeAMoveIsRead() throws IOException {
    Batch old = new Batch(4, PLAN, COMMIT);
    write("offsets", 4, PLAN);
    write("commits", 4, COMMIT);
    write("offsets", 5, old.planned(Map.of(HoldfastConf.MOVE_KEY, "adopt")));
    write("commits", 5, old.committed("2", Map.of(0L, List.of(List.of("id")))));
    QueryLog log = read();
    assertEquals("2", log.newest().format());
    assertEquals("1", log.before().format());
  }

  @Test
  void anEntryThatDoesNotFitItsChecksumsIsDamaged() throws IOException {
    write("offsets", 0, PLAN);
    write("commits", 0, COMMIT);
    byte[] head = {'c', 'r', 'c', 0, 0, 0, 2, 0, 1, 2, 3, 4};
    Files.write(checkpoint.resolve("offsets/.0.crc"), head);
    Exception damaged = assertThrows(DamagedStateException.class, this::read);
    assertTrue(damaged.getMessage().contains("/offsets/0 is damaged"), damaged.getMessage());
  }

  @ParameterizedTest
  @ValueSource(strings = {"offsets", "commits"})
  void aDamagedEntryIsNamed(String log) throws IOException {
    write("offsets", 0, log.equals("offsets") ? PLAN.substring(0, 12) : PLAN);
    write("commits", 0, log.equals("commits") ? COMMIT.substring(0, 12) : COMMIT);
    Exception damaged = assertThrows(DamagedStateException.class, this::read);
    assertEquals(
        "file:" + checkpoint + "/" + log + "/0 is damaged: put it back from a copy",
        damaged.getMessage());
  }
}
