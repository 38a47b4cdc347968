package io.holdfast.spark.minor;

import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.SupportsFineGrainedReplay;
import org.apache.spark.util.NextIterator;
import scala.Enumeration;
import scala.Option;
import scala.Tuple4;

/** What Spark's state readers ask for. Up to 4.0 they know versions, and no ids of commits. */
public interface ReplaysChanges extends SupportsFineGrainedReplay {
  /** Loads an older version and applies the changes of the commits up to {@code endVersion}. */
  StateStore replay(
      long snapshotVersion, long endVersion, Option<String> snapshotId, Option<String> endId);

  /** As {@link #replay}, for reading. */
  ReadStateStore replayForReading(
      long snapshotVersion, long endVersion, Option<String> snapshotId, Option<String> endId);

  /** Changes of the versions from {@code startVersion} to {@code endVersion}, both included. */
  NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>> changes(
      long startVersion, long endVersion, Option<String> columnFamily, Option<String> endId);

  @Override
  default StateStore replayStateFromSnapshot(long snapshotVersion, long endVersion) {
    return replay(snapshotVersion, endVersion, Option.empty(), Option.empty());
  }

  @Override
  default ReadStateStore replayReadStateFromSnapshot(long snapshotVersion, long endVersion) {
    return replayForReading(snapshotVersion, endVersion, Option.empty(), Option.empty());
  }

  @Override
  default NextIterator<Tuple4<Enumeration.Value, UnsafeRow, UnsafeRow, Object>>
      getStateStoreChangeDataReader(
          long startVersion, long endVersion, Option<String> columnFamily) {
    return changes(startVersion, endVersion, columnFamily, Option.empty());
  }
}
