package io.holdfast.spark.suites

import org.apache.spark.sql.streaming

class StreamingAggregationSuite extends streaming.StreamingAggregationSuite with HoldfastAsProvider

class StreamingDeduplicationSuite
  extends streaming.StreamingDeduplicationSuite with HoldfastAsProvider

class StreamingDeduplicationWithinWatermarkSuite
  extends streaming.StreamingDeduplicationWithinWatermarkSuite with HoldfastAsProvider

class StreamingSessionWindowSuite
  extends streaming.StreamingSessionWindowSuite with HoldfastAsProvider

class EventTimeWatermarkSuite extends streaming.EventTimeWatermarkSuite with HoldfastAsProvider

class MultiStatefulOperatorsSuite
  extends streaming.MultiStatefulOperatorsSuite with HoldfastAsProvider

/** Of its tests, those of `limit` have state. */
class StreamSuite extends streaming.StreamSuite with HoldfastAsProvider

class FlatMapGroupsWithStateSuite
  extends streaming.FlatMapGroupsWithStateSuite with HoldfastAsProvider

class FlatMapGroupsWithStateWithInitialStateSuite
  extends streaming.FlatMapGroupsWithStateWithInitialStateSuite with HoldfastAsProvider
