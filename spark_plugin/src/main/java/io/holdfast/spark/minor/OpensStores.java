package io.holdfast.spark.minor;

import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import scala.Option;

/**
 * Spark's calls that open stores. Up to 4.0 Spark never turns a store for reading into one for
 * changes. Spark may ask for a snapshot with the commit, in vain: maintenance merges changelogs.
 */
public interface OpensStores extends StateStoreProvider {
  /** Opens a version for changing it, perhaps without its content. */
  StateStore open(long version, Option<String> checkpointId, boolean empty);

  /** Turns a store that reads a version into a store that changes it. */
  StateStore upgrade(ReadStateStore readStore, long version, Option<String> checkpointId);

  @Override
  default StateStore getStore(
      long version, Option<String> checkpointId, boolean snapshot, boolean empty) { // from-4.2
    // until-4.1: long version, Option<String> checkpointId) {
    return open(version, checkpointId, empty); // from-4.2
    // until-4.1: return open(version, checkpointId, false);
  }

  default StateStore upgradeReadStoreToWriteStore(
      ReadStateStore readStore,
      long version,
      Option<String> checkpointId, boolean snapshot) { // from-4.2
    // until-4.1: Option<String> checkpointId) {
    return upgrade(readStore, version, checkpointId);
  }
}
