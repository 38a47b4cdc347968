package io.holdfast.spark.executor;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.holdfast.spark.HoldfastConf;
import java.util.Map;
import java.util.OptionalLong;
import org.apache.spark.SparkConf;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class MemoryTargetTest {
  private static final long MIB = 1 << 20;
  private static final long GIB = 1 << 30;

  private static final String KEY =
      "spark.sql.streaming.stateStore.holdfast.targetMemoryBytes";

  /** Settings as text: {@code key=value key=value}, without {@code spark.}. */
  private static MemoryFacts facts(String settings, long limit) {
    SparkConf conf = new SparkConf(false);
    for (String setting : settings.split(" ")) {
      String[] parts = setting.split("=");
      conf.set("spark." + parts[0], parts[1]);
    }
    return MemoryFacts.of(conf, 4 * GIB, limit, 64 * GIB);
  }

  private static MemoryTarget target(MemoryFacts facts) {
    return MemoryTarget.of(0, OptionalLong.empty(), facts);
  }

  @ParameterizedTest
  @CsvSource({
    "executor.cores=1, 384",
    "executor.memory=2g, 384",
    "executor.memory=8g, 819",
    "executor.memory=8g executor.minMemoryOverhead=1g, 1024",
    "executor.memory=8g executor.memoryOverheadFactor=0.25, 2048",
    "executor.memory=8g kubernetes.memoryOverheadFactor=0.4, 3276",
    "executor.memory=8g kubernetes.memoryOverheadFactor=0.4 executor.memoryOverheadFactor=0.25, 2048",
    // Spark reads a number without a unit as MiB.
    "executor.memoryOverhead=3000, 3000",
    "executor.memoryOverhead=3g executor.memoryOverheadFactor=1, 3072",
  })
  void inAContainerOfSparkItIsHalfOfTheOverhead(String settings, long overheadMib) {
    for (String master : new String[] {"yarn", "k8s://https://127.0.0.1:6443"}) {
      // The limit that the process sees does not count: YARN need not limit it.
      for (long limit : new long[] {6 * GIB, 64 * GIB}) {
        MemoryTarget found = target(facts(settings + " master=" + master, limit));
        assertEquals(overheadMib * MIB / 2, found.bytes());
        assertTrue(
            found.origin().contains("half of the memory overhead, " + overheadMib + " MiB"));
        assertFalse(found.isChosen());
      }
    }
  }

  @ParameterizedTest
  @ValueSource(strings = {"local[*]", "local-cluster[2,1,1024]", "spark://127.0.0.1:1"})
  void inAnotherContainerItIsHalfOfWhatTheHeapLeaves(String master) {
    // These masters give no overhead.
    String settings = "executor.memoryOverhead=40g master=" + master;
    MemoryTarget found = target(facts(settings, 10 * GIB));
    assertEquals(3 * GIB, found.bytes());
    assertTrue(
        found.origin().contains("half of what the heap leaves of the container, 6144 MiB"));
    settings +=
        " executor.pyspark.memory=1g memory.offHeap.enabled=true memory.offHeap.size=1g";
    assertEquals(2 * GIB, target(facts(settings, 10 * GIB)).bytes());
  }

  @Test
  void onAMachineWithoutALimitItIsAQuarterOfWhatTheHeapLeaves() {
    MemoryTarget found = target(facts("master=local[4]", 64 * GIB));
    assertEquals(15 * GIB, found.bytes());
    assertTrue(
        found.origin().contains("a quarter of what the heap leaves of the machine, 61440 MiB"));
  }

  @ParameterizedTest
  @CsvSource({"master=local, 4", "master=local, 2", "master=yarn executor.memoryOverhead=100m, 64"})
  void smallJobsHaveRoomWhereverTheyRun(String settings, long limitGib) {
    MemoryTarget found = target(facts(settings, limitGib * GIB));
    assertEquals(128 * MIB, found.bytes());
    assertTrue(found.origin().startsWith("the least"));
  }

  @ParameterizedTest
  @ValueSource(strings = {"yarn", "local"})
  void settingsComeFirst(String master) {
    MemoryFacts facts = facts("master=" + master, 64 * GIB);
    MemoryTarget given = MemoryTarget.of(GIB, OptionalLong.of(5 * MIB), facts);
    assertEquals(5 * MIB, given.bytes());
    assertTrue(given.isChosen());
    MemoryTarget limited = MemoryTarget.of(GIB, OptionalLong.empty(), facts);
    // The core takes three quarters of the limit.
    assertEquals(0, limited.bytes());
    assertTrue(limited.isChosen());
    assertTrue(limited.origin().contains("three quarters of maxMemoryBytes, 1024 MiB"));
    for (long limit : new long[] {0, GIB}) {
      MemoryTarget off = MemoryTarget.of(limit, OptionalLong.of(0), facts);
      assertEquals(MemoryTarget.NONE, off.bytes());
      assertFalse(off.isChosen());
    }
  }

  @Test
  void theSettingMayBeASizeOrAutoOr0() {
    assertEquals(OptionalLong.empty(), new HoldfastConf(Map.of()).targetMemoryBytes);
    assertEquals(OptionalLong.empty(), new HoldfastConf(Map.of(KEY, " AUTO ")).targetMemoryBytes);
    assertEquals(OptionalLong.of(0), new HoldfastConf(Map.of(KEY, "0")).targetMemoryBytes);
    assertEquals(OptionalLong.of(2048), new HoldfastConf(Map.of(KEY, "2k")).targetMemoryBytes);
  }

  @Test
  void thisProcessKnowsItsMachineAndItsHeap() {
    MemoryFacts known = MemoryFacts.here(new SparkConf(false));
    assertEquals(Runtime.getRuntime().maxMemory(), known.heapBytes());
    assertTrue(GIB / 2 < known.limitBytes() && known.limitBytes() <= known.machineBytes());
    assertFalse(known.isContainerOfSpark());
  }
}
