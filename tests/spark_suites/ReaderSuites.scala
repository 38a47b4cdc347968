package io.holdfast.spark.suites

import org.apache.spark.holdfast.RememberingProvider
import org.apache.spark.sql.execution.datasources.v2.state
import org.apache.spark.sql.execution.streaming.state.{OperatorStateMetadataSuite => MetadataSuite}
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider
import org.apache.spark.sql.internal.SQLConf

/** The reader of state. Its tests on checkpoints that Spark made with another provider are not here. */
class StateDataSourceReadSuite extends state.StateDataSourceReadSuite with HoldfastAsProvider {
  override protected def newStateStoreProvider(): StateStoreProvider = new RememberingProvider

  override def beforeAll(): Unit = {
    super.beforeAll()
    spark.conf.set(SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT.key, 2)
  }

  test("ERROR: snapshot of version not found") {
    testSnapshotNotFound()
  }

  test("provider.getReadStore(snapshotVersion, endVersion)") {
    testGetReadStoreWithStartVersion()
  }

  test("option snapshotPartitionId") {
    testSnapshotPartitionId()
  }

  test("snapshotStartBatchId on join state v3") {
    testSnapshotOnJoinStateV3()
  }

  test("snapshotStartBatchId on join state v4") {
    testSnapshotOnJoinStateV4()
  }
}

class StateDataSourceChangeDataReaderSuite
  extends state.StateDataSourceChangeDataReaderSuite with HoldfastAsProvider {
  override protected def newStateStoreProvider(): StateStoreProvider = new RememberingProvider

  override def beforeAll(): Unit = {
    super.beforeAll()
    // It names the provider of its one test without a query; the others are to have queries.
    spark.conf.set(SQLConf.STATE_STORE_PROVIDER_CLASS.key, Settings.provider)
  }
}

class StateDataSourceNegativeTestSuite
  extends state.StateDataSourceNegativeTestSuite with HoldfastAsProvider

class StateDataSourceSQLConfigSuite
  extends state.StateDataSourceSQLConfigSuite with HoldfastAsProvider

class StateDataSourceNoEmptyDirCreationSuite
  extends state.StateDataSourceNoEmptyDirCreationSuite with HoldfastAsProvider

class StateDataSourceTransformWithStateSuite
  extends state.StateDataSourceTransformWithStateSuite with HoldfastAsProvider

class OperatorStateMetadataSuite extends MetadataSuite with HoldfastAsProvider
