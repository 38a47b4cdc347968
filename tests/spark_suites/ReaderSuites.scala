package io.holdfast.spark.suites

import org.apache.spark.holdfast.RememberingProvider
import org.apache.spark.sql.execution.datasources.v2.state
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.apache.spark.sql.internal.SQLConf

class StateDataSourceChangeDataReaderSuite
  extends state.StateDataSourceChangeDataReaderSuite with HoldfastAsProvider {
  override protected def newStateStoreProvider(): StateStoreProvider = new RememberingProvider

  override def beforeAll(): Unit = {
    super.beforeAll()
    // It names the provider of its one test without a query; the others are to have queries.
    spark.conf.set(SQLConf.STATE_STORE_PROVIDER_CLASS.key, Settings.provider)
  }
}
