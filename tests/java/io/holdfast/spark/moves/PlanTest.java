package io.holdfast.spark.moves;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertNull;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.holdfast.spark.DamagedStateException;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.sparklog.PlanEntry;
import io.holdfast.spark.sparklog.QueryLog;
import io.holdfast.spark.sparklog.ViewId;
import java.util.List;
import java.util.Map;
import java.util.TreeMap;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.function.Executable;
import org.junit.jupiter.params.ParameterizedTest;
import org.junit.jupiter.params.provider.CsvSource;
import org.junit.jupiter.params.provider.ValueSource;

class PlanTest {
  private static final String PACKAGE = "org.apache.spark.sql.execution.streaming.state.";
  private static final String ROCKSDB = PACKAGE + "RocksDBStateStoreProvider";
  private static final String HDFS = PACKAGE + "HDFSBackedStateStoreProvider";
  private static final String HOLDFAST = HoldfastConf.PROVIDER_CLASS;

  /** The first two ids of tests/fixtures/parked-v1. Rows wait in the second one. */
  private static final String ID =
      "hf1-AQAAAAAAAAABAAAAAAAAAPk8Qs-RTjt3ACoAAAAAAAAAAQAAABgAAAAAAAAATQAAAAAAAABqBu"
          + "8m9DUtUwDiReK1yZ0YOrOSsg";

  private static final String PARKED =
      "hf1-AgAAAAAAAAABAAAAAAAAAPk8Qs-RTjt3gAEAAgAAAAAAAAAqAAAAAAAAAAEAAABlAAAAAAAAAF"
          + "EAAAAAAAAAHT3dQ17G6J7bZKf1I2_C9SoAAAAAAAAAAQAAABgAAAAAAAAATQAAAAAAAABqBu8m9DUt"
          + "UwDiReK1yZ0YQzNfdg";

  private static final Map<Integer, String> PARENTS = new TreeMap<>(Map.of(0, ID));
  private static final String VIEW = new ViewId(3, 2, 4, "default", PARENTS).text();

  /** Batch 3 of a query with two partitions. */
  private static Batch batch(String provider, String... ids) {
    String settings =
        String.format(
            "\"%s\":\"%s\",\"%s\":\"2\",\"%s\":\"true\"",
            HoldfastConf.PROVIDER_KEY,
            provider,
            Batch.PARTITIONS_KEY,
            "spark.sql.streaming.statefulOperator.useStrictDistribution");
    Batch plain = new Batch(3, "v1\n{\"conf\":{" + settings + "}}\n{\"logOffset\":1}", "v1\n{}");
    Map<Long, List<List<String>>> found = Map.of(0L, List.of(List.of(ids)));
    return ids.length == 0
        ? plain
        : new Batch(3, plain.offsets(), committed(plain, "2", found));
  }

  private static String committed(Batch batch, String format, Map<Long, List<List<String>>> ids) {
    try {
      return batch.committed(format, ids);
    } catch (java.io.IOException e) {
      throw new AssertionError(e);
    }
  }

  /** The logs of a query that stopped between two batches. */
  private static QueryLog stopped(Batch newest) {
    return new QueryLog("file:/cp", true, 3, PlanEntry.of(newest.offsets()), newest, null);
  }

  /** The logs of a query behind a batch that a command published. */
  private static QueryLog moved(Batch before, Map<String, String> changes) {
    String planned = before.planned(changes);
    Batch newest = new Batch(4, planned, before.commit());
    return new QueryLog("file:/cp", true, 4, PlanEntry.of(planned), newest, before);
  }

  /** The logs of a query of which a batch is planned and not committed. */
  private static QueryLog pending(Batch newest, Map<String, String> changes) {
    PlanEntry planned = PlanEntry.of(newest.planned(changes));
    return new QueryLog("file:/cp", true, 4, planned, newest, null);
  }

  private static void refused(String text, Executable call) {
    String found = assertThrows(UnsupportedStateException.class, call).getMessage();
    assertTrue(found.contains(text), found);
  }

  private static void leave(QueryLog log) {
    Plan.leave(log, "rocksdb", "1");
  }

  @ParameterizedTest
  @ValueSource(strings = {ROCKSDB, HDFS})
  void stateOfSparkIsAdopted(String provider) {
    Plan plan = Plan.adoption(stopped(batch(provider)));
    assertEquals(4, plan.number());
    assertEquals(HOLDFAST, plan.provider());
    assertEquals("2", plan.format());
    assertEquals(plan.newest(), plan.base());
    assertEquals("adopt", plan.changes().get(HoldfastConf.MOVE_KEY));
  }

  @Test
  void stateOfHoldfastLeaves() {
    Plan plan = Plan.leave(stopped(batch(HOLDFAST, ID)), "hdfs", "1");
    assertEquals(HDFS, plan.provider());
    assertEquals("1", plan.format());
    assertEquals("leave --to hdfs --format 1", plan.changes().get(HoldfastConf.MOVE_KEY));
  }

  @Test
  void anAdoptionIsUndoneWithTheStateFromBeforeIt() {
    Batch before = batch(ROCKSDB);
    QueryLog log = moved(before, Plan.adoption(stopped(before)).changes());
    Plan plan = Plan.undo(log, false);
    assertEquals(5, plan.number());
    assertEquals(before, plan.base());
    assertEquals(ROCKSDB, plan.provider());
    assertEquals("1", plan.format());
    refused("no batch of /cp has run since the adoption", () -> Plan.requirePurgeable(log));
  }

  @Test
  void anAdoptionIsNotUndoneOnceABatchCameAfterIt() {
    QueryLog log = stopped(batch(HOLDFAST, ID));
    refused("the newest batch of /cp is no adoption", () -> Plan.undo(log, false));
    Plan.requirePurgeable(log);
  }

  @Test
  void stateThatIsThereAlreadyIsNotMoved() {
    assertNull(Plan.adoption(stopped(batch(HOLDFAST, ID))));
    assertNull(Plan.leave(stopped(batch(ROCKSDB)), "rocksdb", "1"));
    Plan undo = Plan.undo(moved(batch(ROCKSDB), Map.of(
        HoldfastConf.PROVIDER_KEY, HOLDFAST, HoldfastConf.MOVE_KEY, "adopt")), false);
    assertNull(Plan.undo(moved(batch(ROCKSDB), undo.changes()), false));
    // It completes the log of a sink, whatever ran since.
    assertNull(Plan.undo(stopped(batch(ROCKSDB)), true));
    refused("is in " + ROCKSDB + ", not in Holdfast", () -> Plan.undo(stopped(batch(ROCKSDB)), false));
  }

  @Test
  void stateOfAnotherProviderIsRefused() {
    QueryLog log = stopped(batch("com.example.Provider"));
    refused(
        "/cp has its state in com.example.Provider. Only checkpoints of Spark's own providers",
        () -> Plan.adoption(log));
    refused("is in com.example.Provider, not in Holdfast", () -> leave(log));
    refused("is in com.example.Provider, not in Holdfast", () -> Plan.repartition(log, 4));
    refused("is in com.example.Provider, not in Holdfast", () -> Plan.requirePurgeable(log));
  }

  @Test
  void aBatchThatHasBegunMustEndFirst() {
    String said =
        "batch 4 of /cp has begun and not ended, and its sink may have some of its rows. Nothing was"
            + " changed. If the query runs, stop it. Then run it once with "
            + HoldfastConf.PROVIDER_KEY;
    QueryLog sparks = pending(batch(ROCKSDB), Map.of("other", "setting"));
    refused(said + "=" + ROCKSDB, () -> Plan.adoption(sparks));
    refused(said, () -> leave(sparks));
    QueryLog ours = pending(batch(HOLDFAST, ID), Map.of("other", "setting"));
    refused(said + "=" + HOLDFAST, () -> leave(ours));
    refused(said, () -> Plan.adoption(ours));
    refused(said, () -> Plan.repartition(ours, 4));
  }

  @Test
  void aCommandFinishesItsOwnBatchAndNoOther() {
    Batch newest = batch(HOLDFAST, ID);
    Plan plan = Plan.repartition(stopped(newest), 4);
    QueryLog log = pending(newest, plan.changes());
    assertEquals(plan, Plan.repartition(log, 4));
    String said =
        "'holdfast repartition --partitions 4 /cp' has begun and not ended: /cp/commits/4 is missing."
            + " Run 'holdfast repartition --partitions 4 /cp --yes' again first";
    refused(said, () -> Plan.repartition(log, 6));
    refused(said, () -> leave(log));
  }

  @ParameterizedTest
  @CsvSource({"6, 3, commits, 3", "3, 5, offsets, 3", "-1, 3, offsets, none"})
  void logsThatLackEntriesAreRefused(long planned, long committed, String log, String last) {
    Exception torn =
        assertThrows(
            DamagedStateException.class, () -> Plan.requireWhole("/cp", planned, committed));
    assertTrue(
        torn.getMessage().contains("/cp lacks entries of " + log + " behind " + last),
        torn.getMessage());
  }

  @Test
  void aCheckpointWithoutStateIsRefused() {
    QueryLog empty = new QueryLog("file:/cp", false, -1, null, null, null);
    refused("/cp has no state of a committed batch", () -> Plan.adoption(empty));
    Batch first = batch(ROCKSDB);
    QueryLog begun = new QueryLog("file:/cp", true, 0, PlanEntry.of(first.offsets()), null, null);
    refused("batch 0 of /cp has begun", () -> Plan.adoption(begun));
    QueryLog stateless =
        new QueryLog("file:/cp", false, 3, PlanEntry.of(first.offsets()), first, null);
    refused("/cp has no state of a committed batch", () -> leave(stateless));
  }

  @Test
  void rowsThatWaitWouldBeLost() {
    QueryLog log = stopped(batch(HOLDFAST, ID, PARKED));
    refused("/cp has parked partitions, whose rows would be lost: 'holdfast parked", () -> leave(log));
    refused("/cp has parked partitions, whose input waits", () -> Plan.repartition(log, 4));
  }

  @Test
  void otherPartitionsNeedThatSparkPartitionsByTheWholeKey() {
    Batch strict = batch(HOLDFAST, ID);
    Batch loose = new Batch(3, strict.offsets().replace("\"true\"", "\"false\""), strict.commit());
    refused("/cp was not made with", () -> Plan.repartition(stopped(loose), 4));
  }

  @Test
  void anyNumberOfPartitionsIsPlannedAlsoThatWhichIsThere() {
    QueryLog log = stopped(batch(HOLDFAST, ID));
    assertEquals("4", Plan.repartition(log, 4).changes().get(Batch.PARTITIONS_KEY));
    assertEquals(2, Plan.repartition(log, 2).newest().partitions());
  }

  @Test
  void viewsNeedFewParentsThatAreNoViews() {
    Plan plan = Plan.repartition(stopped(batch(HOLDFAST, ID)), 18);
    assertNull(plan.tooManyParents(16));
    assertTrue(
        plan.tooManyParents(17).contains("read 17 of the 2 old ones, and the most is 16"));
    plan.requireRows();
    Plan again = Plan.repartition(stopped(batch(HOLDFAST, VIEW)), 4);
    refused("/cp has got 2 partitions and no batch since", again::requireRows);
  }

  @Test
  void aStartAdoptsStateOfSparkAndFinishesAnAdoption() {
    assertTrue(Plan.isAdoptable(ROCKSDB, ""));
    assertTrue(Plan.isAdoptable(HOLDFAST, "adopt"));
    assertFalse(Plan.isAdoptable(HOLDFAST, ""));
    assertFalse(Plan.isAdoptable("com.example.Provider", ""));
    assertFalse(Plan.isAdoptable(ROCKSDB, "leave --to rocksdb --format 1"));
  }
}
