package io.holdfast.spark.minor;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.SupportsFineGrainedReplay;
import org.apache.spark.util.NextIterator;
import scala.Enumeration;
import scala.Option;
import scala.Tuple4;

/** The calls of Spark's state readers, which have ids of commits since 4.1. */
public interface ReplaysChanges extends SupportsFineGrainedReplay {
  /** Loads an older version and applies the changes of the commits up to {@code endVersion}. */
  StateStore replay(
      long snapshotVersion, long endVersion, Option<String> snapshotId, Option<String> endId);

  ReadStateStore replayForReading(
      long snapshotVersion, long endVersion, Option<String> snapshotId, Option<String> endId);

  /** Both versions are included. */
  NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>> changes(
      long startVersion, long endVersion, Option<String> columnFamily, Option<String> endId);

  @Override
  default StateStore replayStateFromSnapshot(
      long snapshotVersion, long endVersion, boolean readOnly, // from-4.1
      Option<String> snapshotId, Option<String> endId) { // from-4.1
    // until-4.0: long snapshotVersion, long endVersion) {
    return replay(snapshotVersion, endVersion, snapshotId, endId); // from-4.1
    // until-4.0: return replay(snapshotVersion, endVersion, Option.empty(), Option.empty());
  }

  @Override
  default ReadStateStore replayReadStateFromSnapshot(
      long snapshotVersion, long endVersion, // from-4.1
      Option<String> snapshotId, Option<String> endId) { // from-4.1
    // until-4.0: long snapshotVersion, long endVersion) {
    return replayForReading(snapshotVersion, endVersion, snapshotId, endId); // from-4.1
    // until-4.0: return replayForReading(snapshotVersion, endVersion, Option.empty(), Option.empty());
  }

  @Override
  default NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>>
      getStateStoreChangeDataReader(
          long startVersion, long endVersion, Option<String> family, Option<String> endId) { // from-4.1
    // until-4.0: long startVersion, long endVersion, Option<String> family) {
    return changes(startVersion, endVersion, family, endId); // from-4.1
    // until-4.0: return changes(startVersion, endVersion, family, Option.empty());
  }
}
