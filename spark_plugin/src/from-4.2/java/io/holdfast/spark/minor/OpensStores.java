package io.holdfast.spark.minor;

import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import scala.Option;

/**
 * How Spark asks a provider for stores, since 4.2. Where it asks for a snapshot with the commit,
 * because the store is behind with them, maintenance merges changelogs as for any other.
 */
public interface OpensStores extends StateStoreProvider {
  /**
   * Opens a version for changing it.
   *
   * @param empty without its content
   */
  StateStore open(long version, Option<String> checkpointId, boolean empty);

  /** Turns a store that reads a version into one that changes it. */
  StateStore upgrade(ReadStateStore readStore, long version, Option<String> checkpointId);

  @Override
  default StateStore getStore(
      long version, Option<String> checkpointId, boolean forceSnapshotOnCommit, boolean loadEmpty) {
    return open(version, checkpointId, loadEmpty);
  }

  @Override
  default StateStore upgradeReadStoreToWriteStore(
      ReadStateStore readStore,
      long version,
      Option<String> checkpointId,
      boolean forceSnapshotOnCommit) {
    return upgrade(readStore, version, checkpointId);
  }
}
