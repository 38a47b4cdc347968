// Spark's RocksDB provider is private to its SQL module.
package org.apache.spark.sql.holdfast

import io.holdfast.spark.HoldfastStateStoreProvider
import org.apache.spark.sql.execution.streaming.state._

/** Collects the ids of Holdfast's stores, as the tests of checkpoint format 2 do with Spark's. */
class CollectingProvider extends CkptIdCollectingStateStoreProviderWrapper {
  private val holdfast = new HoldfastStateStoreProvider
  override val innerProvider: RocksDBStateStoreProvider = new RocksDBInName(holdfast)

  override def getReadStore(version: Long, id: Option[String]): ReadStateStore =
    holdfast.getReadStore(version, id)

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      id: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore =
    CkptIdCollectingStateStoreWrapper(
      holdfast.upgradeReadStoreToWriteStore(readStore, version, id, forceSnapshotOnCommit))
}
