package io.holdfast.spark.sparklog;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.holdfast.spark.DamagedStateException;
import io.holdfast.spark.sparklog.CommitLog.StoreId;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;

class CommitLogTest {
  /** The first id of tests/fixtures/parked-v1. */
  private static final String ONE =
      "hf1-AQAAAAAAAAABAAAAAAAAAPk8Qs-RTjt3ACoAAAAAAAAAAQAAABgAAAAAAAAATQAAAAAAAABqBu8m9DUtUw"
          + "DiReK1yZ0YOrOSsg";

  private static final ViewId VIEW =
      new ViewId(3, 2, 4, "default", new TreeMap<>(Map.of(0, ONE, 1, ONE)));

  private static List<StoreId> ids(String entry) throws IOException {
    return CommitLog.holdfastIds(entry.getBytes(StandardCharsets.UTF_8));
  }

  @Test
  void anEntryHasTheIdsOfItsStoresByOperatorAndPartition() throws IOException {
    String entry =
        "v2\n{\"stateUniqueIds\":{\"0\":[[\"" + ONE + "\"],[\"a-b\"]],\"7\":[[\"" + ONE + "\"]]}}";
    assertEquals(
        List.of(new StoreId("0", "0/0", ONE), new StoreId("7", "7/0", ONE)), ids(entry));
  }

  @Test
  void anEntryWithoutIdsHasNone() throws IOException {
    assertEquals(List.of(), ids("v1\n{}"));
    assertEquals(List.of(), ids("v1"));
    assertEquals(List.of(), ids(""));
    assertThrows(IOException.class, () -> ids("v1\n{\"stateUni"));
  }

  @Test
  void aViewIsReadAsItWasWritten() {
    assertTrue(ViewId.is(VIEW.text()));
    assertFalse(ViewId.is(ONE));
    assertFalse(ViewId.is(null));
    assertEquals(VIEW, ViewId.parse(VIEW.text()));
    assertThrows(DamagedStateException.class, () -> ViewId.parse(VIEW.text() + "AAAA"));
  }

  @Test
  void aViewNeedsTheStoresThatItIsMadeOf() {
    List<StoreId> needed = CommitLog.needed(List.of(new StoreId("0", "0/3", VIEW.text())));
    assertEquals(List.of(new StoreId("0", "0/0", ONE), new StoreId("0", "0/1", ONE)), needed);
  }
}
