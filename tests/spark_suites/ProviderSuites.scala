package io.holdfast.spark.suites

import scala.util.Random

import org.apache.hadoop.conf.Configuration
import org.apache.spark.{SparkConf, SparkContext}
import org.apache.spark.holdfast.RememberingProvider
import org.apache.spark.sql.execution.streaming.state
import org.apache.spark.sql.execution.streaming.state._
import org.apache.spark.sql.internal.SQLConf
import org.apache.spark.sql.types.StructType
import org.scalatest.{Args, Status}

/** Spark's contract of providers. */
class StateStoreSuite extends state.StateStoreSuiteBase[RememberingProvider] {
  import StateStoreTestsHelper._

  private var context: Option[SparkContext] = None

  override def runTest(testName: String, args: Args): Status =
    StoresSeen.during(getClass.getSimpleName, testName)(super.runTest(testName, args))

  override def afterAll(): Unit =
    try context.foreach(_.stop())
    finally super.afterAll()

  override def getDefaultSQLConf(
      minDeltasForSnapshot: Int,
      numOfVersToRetainInMemory: Int): SQLConf = {
    val conf = new SQLConf()
    conf.setConf(SQLConf.STATE_STORE_PROVIDER_CLASS, classOf[RememberingProvider].getName)
    conf.setConf(SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION, 2)
    conf.setConf(SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT, minDeltasForSnapshot)
    conf.setConf(SQLConf.MAX_BATCHES_TO_RETAIN_IN_MEMORY, numOfVersToRetainInMemory)
    conf.setConf(SQLConf.MIN_BATCHES_TO_RETAIN, 2)
    conf
  }

  override def getDefaultStoreConf(): StateStoreConf = new StateStoreConf(defaultConf)

  private def defaultConf: SQLConf =
    getDefaultSQLConf(
      SQLConf.STATE_STORE_MIN_DELTAS_FOR_SNAPSHOT.defaultValue.get,
      SQLConf.MAX_BATCHES_TO_RETAIN_IN_MEMORY.defaultValue.get)

  private def make(
      id: StateStoreId = StateStoreId(newDir(), Random.nextInt(), 0),
      keySchema: StructType = keySchema,
      keySpec: Option[KeyStateEncoderSpec] = None,
      columnFamilies: Boolean = false,
      conf: SQLConf = defaultConf,
      hadoopConf: Configuration = new Configuration): RememberingProvider = {
    // Some tests stop the session that they, or an earlier one, began.
    val wanted = new SparkConf().setMaster("local").setAppName("providers")
    context = Some(SparkContext.getOrCreate(wanted))
    val provider = new RememberingProvider
    provider.init(
      id,
      keySchema,
      valueSchema,
      keySpec.getOrElse(NoPrefixKeyStateEncoderSpec(keySchema)),
      columnFamilies,
      new StateStoreConf(conf),
      hadoopConf,
      useMultipleValuesPerKey = false,
      stateSchemaProvider = Some(new TestStateSchemaProvider))
    provider
  }

  override def newStoreProvider(): RememberingProvider = make()

  override def newStoreProvider(id: StateStoreId): RememberingProvider = make(id)

  override def newStoreProvider(id: StateStoreId, columnFamilies: Boolean): RememberingProvider =
    make(id, columnFamilies = columnFamilies)

  override def newStoreProvider(id: StateStoreId, conf: Configuration): RememberingProvider =
    make(id, hadoopConf = conf)

  override def newStoreProvider(
      minDeltasForSnapshot: Int,
      numOfVersToRetainInMemory: Int): RememberingProvider =
    make(conf = getDefaultSQLConf(minDeltasForSnapshot, numOfVersToRetainInMemory))

  override def newStoreProvider(
      keySchema: StructType,
      keySpec: KeyStateEncoderSpec,
      columnFamilies: Boolean): RememberingProvider =
    make(keySchema = keySchema, keySpec = Some(keySpec), columnFamilies = columnFamilies)

  override def newStoreProvider(columnFamilies: Boolean): RememberingProvider =
    make(columnFamilies = columnFamilies)

  override def newStoreProviderWithClonedConf(id: StateStoreId): RememberingProvider =
    make(id, conf = cloneSQLConf())

  override def cloneSQLConf(): SQLConf = defaultConf

  override def newStoreProviderNoInit(): RememberingProvider = new RememberingProvider

  override def getLatestData(
      provider: RememberingProvider,
      columnFamilies: Boolean): Set[((String, Int), Int)] =
    getData(provider, -1, columnFamilies)

  override def getData(
      provider: RememberingProvider,
      version: Int,
      columnFamilies: Boolean): Set[((String, Int), Int)] =
    tryWithProviderResource(newStoreProvider(provider.stateStoreId, columnFamilies)) { other =>
      val store = other.getReadStore(if (version < 0) other.latestVersion else version, None)
      try rowPairsToDataSet(store.iterator(StateStore.DEFAULT_COL_FAMILY_NAME))
      finally store.abort()
    }
}
