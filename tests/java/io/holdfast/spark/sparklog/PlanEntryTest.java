package io.holdfast.spark.sparklog;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import java.util.Map;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.ValueSource;

class PlanEntryTest {
  private static final PlanEntry WHOLE =
      PlanEntry.of("v1\n{\"conf\":{\"a\":\"b\"}}\n{\"logOffset\":1}");

  @Test
  void anEntrySaysItsSettings() {
    assertTrue(WHOLE.isWhole());
    assertEquals("b", WHOLE.setting("a"));
    assertEquals("", WHOLE.setting("c"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"", "v1", "v1\n", "v1\n{\"conf\":{\"a\"", "v1\n{\"conf\":{\"a\"\n-"})
  void anEntryThatIsEmptyOrCutSaysNothing(String text) {
    PlanEntry entry = PlanEntry.of(text);
    assertFalse(entry.isWhole());
    assertEquals("", entry.setting("a"));
    assertFalse(entry.says(WHOLE));
    assertFalse(WHOLE.says(entry));
  }

  @Test
  void theNextEntryHasTheSameOffsetsAndOtherSettings() {
    PlanEntry next = PlanEntry.of(WHOLE.next(Map.of("a", "c", "d", "e")));
    assertEquals("c", next.setting("a"));
    assertEquals("e", next.setting("d"));
    assertEquals("{\"logOffset\":1}", next.lines()[2]);
    assertFalse(next.says(WHOLE));
    assertTrue(next.says(PlanEntry.of(WHOLE.next(Map.of("d", "e", "a", "c")))));
  }
}
