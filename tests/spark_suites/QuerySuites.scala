package io.holdfast.spark.suites

import org.apache.spark.sql.{connector, streaming}
import org.apache.spark.sql.execution.adaptive.{AdaptiveQueryExecSuite => AdaptiveSuite}
import org.apache.spark.sql.execution.streaming.{
  MemorySinkSuite => InMemorySinkSuite,
  MicroBatchExecutionSuite => BatchesSuite,
  ProgressReporterSuite => ReporterSuite
}
import org.apache.spark.sql.execution.streaming.sources

// Suites of queries, sources and sinks: of each, some tests have state.

class StreamingQuerySuite extends streaming.StreamingQuerySuite with HoldfastAsProvider

class StreamingQueryStatusAndProgressSuite
  extends streaming.StreamingQueryStatusAndProgressSuite with HoldfastAsProvider

class MicroBatchExecutionSuite extends BatchesSuite with HoldfastAsProvider

class ProgressReporterSuite extends ReporterSuite with HoldfastAsProvider

class DataStreamReaderWriterSuite
  extends streaming.test.DataStreamReaderWriterSuite with HoldfastAsProvider

class MemorySinkSuite extends InMemorySinkSuite with HoldfastAsProvider

class ForeachBatchSinkSuite extends sources.ForeachBatchSinkSuite with HoldfastAsProvider

class ForeachWriterSuite extends sources.ForeachWriterSuite with HoldfastAsProvider

class FileStreamSinkV1Suite extends streaming.FileStreamSinkV1Suite with HoldfastAsProvider

class FileStreamSinkV2Suite extends streaming.FileStreamSinkV2Suite with HoldfastAsProvider

/** Spark compares a tester of processors, which has no store, with queries. */
class TwsTesterFuzzTestSuite extends streaming.TwsTesterFuzzTestSuite with HoldfastAsProvider

/** A table's feed of changes, which Spark brings in order with state. */
class ChangelogEndToEndSuite extends connector.ChangelogEndToEndSuite with HoldfastInSessions

class FileStreamSourceSuite
  extends streaming.FileStreamSourceSuite with HoldfastAsProvider {
  override protected def mayHaveState(test: String): Boolean = test.startsWith("SPARK-17372")
}

class AdaptiveQueryExecSuite extends AdaptiveSuite with HoldfastInSessions {
  override protected def mayHaveState(test: String): Boolean = test.contains("streaming query")
}

class WriteDistributionAndOrderingSuite
  extends connector.WriteDistributionAndOrderingSuite with HoldfastInSessions {
  // Spark refuses a number of partitions without a distribution before there is a store.
  override protected def mayHaveState(test: String): Boolean =
    test.endsWith("micro-batch complete") && !test.matches("unspecified .* numPartitions: .*")
}
