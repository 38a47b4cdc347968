package io.holdfast.spark.suites

import org.apache.spark.sql.execution.streaming.state
import org.apache.spark.sql.execution.streaming.state.CkptIdCollectingStateStoreProviderWrapper
import org.apache.spark.sql.holdfast.CollectingProvider
import org.apache.spark.sql.internal.SQLConf

/** Of ids of checkpoint format 2, which Holdfast has as Spark's RocksDB provider has them. */
class RocksDBStateStoreCheckpointFormatV2Suite
  extends state.RocksDBStateStoreCheckpointFormatV2Suite with HoldfastAsProvider {
  private val collecting = classOf[CkptIdCollectingStateStoreProviderWrapper].getName

  override protected def withSQLConf[T](pairs: (String, String)*)(f: => T): T =
    super.withSQLConf(pairs.map {
      case (SQLConf.STATE_STORE_PROVIDER_CLASS.key, `collecting`) =>
        SQLConf.STATE_STORE_PROVIDER_CLASS.key -> classOf[CollectingProvider].getName
      case other => other
    }: _*)(f)
}
