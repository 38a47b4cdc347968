// Types of the change feed are private to Spark.
package org.apache.spark.holdfast

import java.net.URI
import java.nio.file.{Files, Path}
import java.util.UUID
import java.util.concurrent.ConcurrentHashMap

import io.holdfast.spark.HoldfastStateStoreProvider
import org.apache.hadoop.conf.Configuration
import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.runtime.StreamExecution
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.apache.spark.util.NextIterator

/**
 * Holdfast's provider for tests that use one by itself. They name versions without the ids of
 * checkpoint format 2, and give it a Hadoop configuration without the settings of a session.
 */
class RememberingProvider extends StateStoreProvider with SupportsFineGrainedReplay {
  private val holdfast = new HoldfastStateStoreProvider
  private var schemas: Option[StateSchemaProvider] = None
  // With Scala's types, which Java's signatures do not show.
  private val replays: SupportsFineGrainedReplay = holdfast

  override def init(
      stateStoreId: StateStoreId,
      keySchema: StructType,
      valueSchema: StructType,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      useColumnFamilies: Boolean,
      storeConfs: StateStoreConf,
      hadoopConf: Configuration,
      useMultipleValuesPerKey: Boolean,
      stateSchemaProvider: Option[StateSchemaProvider]): Unit = {
    schemas = stateSchemaProvider
    LikeRocksDBStateStore.capture(
      schemas, StateStore.DEFAULT_COL_FAMILY_NAME, keySchema, valueSchema)
    val conf = new Configuration(hadoopConf)
    val manager = SQLConf.STREAMING_CHECKPOINT_FILE_MANAGER_CLASS.parent.key
    conf.set(manager, System.getProperty(manager))
    conf.setIfUnset(StreamExecution.RUN_ID_KEY, UUID.randomUUID().toString)
    holdfast.init(
      stateStoreId,
      keySchema,
      valueSchema,
      keyStateEncoderSpec,
      useColumnFamilies,
      storeConfs,
      conf,
      useMultipleValuesPerKey,
      stateSchemaProvider)
  }

  override def stateStoreId: StateStoreId = holdfast.stateStoreId

  override def getStore(
      version: Long,
      id: Option[String],
      forceSnapshotOnCommit: Boolean,
      loadEmpty: Boolean): StateStore =
    remembered(
      holdfast.getStore(version, idOf(version, id), forceSnapshotOnCommit, loadEmpty))

  override def getReadStore(version: Long, id: Option[String]): ReadStateStore =
    holdfast.getReadStore(version, idOf(version, id))

  override def upgradeReadStoreToWriteStore(
      readStore: ReadStateStore,
      version: Long,
      id: Option[String],
      forceSnapshotOnCommit: Boolean): StateStore =
    remembered(
      holdfast.upgradeReadStoreToWriteStore(
        readStore, version, idOf(version, id), forceSnapshotOnCommit))

  override def replayStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      readOnly: Boolean,
      snapshotId: Option[String],
      endId: Option[String]): StateStore = {
    writeCommitLog()
    replays.replayStateFromSnapshot(
      snapshotVersion,
      endVersion,
      readOnly,
      idOf(snapshotVersion, snapshotId),
      idOf(endVersion, endId))
  }

  override def replayReadStateFromSnapshot(
      snapshotVersion: Long,
      endVersion: Long,
      snapshotId: Option[String],
      endId: Option[String]): ReadStateStore = {
    writeCommitLog()
    replays.replayReadStateFromSnapshot(
      snapshotVersion, endVersion, idOf(snapshotVersion, snapshotId), idOf(endVersion, endId))
  }

  override def getStateStoreChangeDataReader(
      startVersion: Long,
      endVersion: Long,
      colFamilyName: Option[String],
      endId: Option[String]): NextIterator[(RecordType.Value, UnsafeRow, UnsafeRow, Long)] = {
    writeCommitLog()
    replays.getStateStoreChangeDataReader(
      startVersion, endVersion, colFamilyName, idOf(endVersion, endId))
  }

  override def doMaintenance(): Unit = holdfast.doMaintenance()

  override def supportedCustomMetrics: Seq[StateStoreCustomMetric] =
    holdfast.supportedCustomMetrics

  override def close(): Unit = holdfast.close()

  /** The newest version that a provider of this store committed. */
  def latestVersion: Long = committed.map(_.batchVersion).maxOption.getOrElse(0L)

  private def idOf(version: Long, asked: Option[String]): Option[String] =
    asked.orElse(committed.filter(_.batchVersion == version).lastOption.flatMap(_.stateStoreCkptId))

  private def committed: Seq[StateStoreCheckpointInfo] =
    RememberingProvider.opened
      .getOrDefault(stateStoreId, Vector.empty)
      .filter(_.hasCommitted)
      .map(_.getStateStoreCheckpointInfo())

  /** What the driver of a query would have written: ids between two versions come from there. */
  private def writeCommitLog(): Unit = {
    val commits = Path.of(new URI(stateStoreId.checkpointRootLocation).getPath, "..", "commits")
    Files.createDirectories(commits)
    for (info <- committed; id <- info.stateStoreCkptId) {
      val partitions = Seq.fill(stateStoreId.partitionId)("[]") :+ s"""["$id"]"""
      val ids = s"""{"${stateStoreId.operatorId}":[${partitions.mkString(",")}]}"""
      val entry = s"""v2\n{"nextBatchWatermarkMs":0,"stateUniqueIds":$ids}"""
      Files.writeString(commits.resolve((info.batchVersion - 1).toString), entry)
    }
  }

  private def remembered(holdfastStore: StateStore): StateStore = {
    val store = new LikeRocksDBStateStore(holdfastStore, schemas)
    RememberingProvider.opened.merge(stateStoreId, Vector(store), _ ++ _)
    store
  }
}

object RememberingProvider {
  private val opened = new ConcurrentHashMap[StateStoreId, Vector[StateStore]]
}
