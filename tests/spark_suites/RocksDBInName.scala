// Spark's RocksDB provider is private to its SQL module.
package org.apache.spark.sql.holdfast

import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * A provider of the type that Spark's tests declare for theirs. It uses nothing of RocksDB, which
 * only the methods that are overridden here would open.
 */
class RocksDBInName(provider: StateStoreProvider) extends RocksDBStateStoreProvider {
  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConfs: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit =
    provider.init(
      stateStoreId,
      keySchema,
      valueSchema,
      keyStateEncoderSpec,
      useColumnFamilies,
      storeConfs,
      hadoopConf,
      useMultipleValuesPerKey,
      stateSchemaProvider)

  override def stateStoreId: StateStoreId = provider.stateStoreId

  override def getStore(
      version: Long,
      id: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore =
    provider.getStore(version, id, forceSnapshotOnCommit, loadEmpty)

  /** Spark's own returns a store that could change; others have a class for it. */
  override def getReadStore(version: Long, id: Option[String]): StateStore =
    throw new UnsupportedOperationException("a store for reading")

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      id: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore =
    provider.upgradeReadStoreToWriteStore(readStore, version, id, forceSnapshotOnCommit)

  override def doMaintenance(): Unit = provider.doMaintenance()

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] = provider.supportedCustomMetrics

  override def supportedInstanceMetrics: Seq[StateStoreInstanceMetric] =
    provider.supportedInstanceMetrics

  override def close(): Unit = provider.close()
}
