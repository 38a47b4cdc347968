package io.holdfast.spark.suites

import org.apache.hadoop.conf.Configuration
import org.apache.spark.holdfast.RememberingProvider
import org.apache.spark.sql.execution.streaming.state
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.holdfast.RocksDBInName
import org.apache.spark.sql.internal.SQLConf

// The variables and timers of transformWithState, each over a store that the test opens by itself.

trait HoldfastStateVariables extends StateVariableSuiteBase with HoldfastInSessions {
  override protected def newStoreProviderWithStateVariable(
      storeId: StateStoreId,
      keyStateEncoderSpec: KeyStateEncoderSpec,
      sqlConf: SQLConf,
      conf: Configuration,
      useColumnFamilies: Boolean,
      schemas: Option[StateSchemaProvider]): RocksDBInName = {
    val provider = new RocksDBInName(new RememberingProvider)
    provider.init(
      storeId,
      schemaForKeyRow,
      schemaForValueRow,
      keyStateEncoderSpec,
      useColumnFamilies,
      new StateStoreConf(sqlConf),
      conf,
      useMultipleValuesPerKey,
      schemas.orElse(Some(new TestStateSchemaProvider)))
    provider
  }
}

class ValueStateSuite extends state.ValueStateSuite with HoldfastStateVariables

class ListStateSuite extends state.ListStateSuite with HoldfastStateVariables

class MapStateSuite extends state.MapStateSuite with HoldfastStateVariables

class TimerSuite extends state.TimerSuite with HoldfastStateVariables

class StatefulProcessorHandleSuite
  extends state.StatefulProcessorHandleSuite with HoldfastStateVariables
