package io.holdfast.spark.suites

import org.apache.spark.sql.streaming

// Joins in each of their state formats: 2 has stores of its own for each side, 3 has column families
// in one store, and 4 orders these by time.

class StreamingInnerJoinWithoutVCFSuite
  extends streaming.StreamingInnerJoinWithoutVCFSuite with HoldfastAsProvider

class StreamingInnerJoinWithVCFSuite
  extends streaming.StreamingInnerJoinWithVCFSuite with HoldfastAsProvider

class StreamingInnerJoinV4Suite extends streaming.StreamingInnerJoinV4Suite with HoldfastAsProvider

class StreamingOuterJoinWithoutVCFSuite
  extends streaming.StreamingOuterJoinWithoutVCFSuite with HoldfastAsProvider

class StreamingOuterJoinWithVCFSuite
  extends streaming.StreamingOuterJoinWithVCFSuite with HoldfastAsProvider

class StreamingOuterJoinV4Suite extends streaming.StreamingOuterJoinV4Suite with HoldfastAsProvider

class StreamingFullOuterJoinWithoutVCFSuite
  extends streaming.StreamingFullOuterJoinWithoutVCFSuite with HoldfastAsProvider

class StreamingFullOuterJoinWithVCFSuite
  extends streaming.StreamingFullOuterJoinWithVCFSuite with HoldfastAsProvider

class StreamingFullOuterJoinV4Suite
  extends streaming.StreamingFullOuterJoinV4Suite with HoldfastAsProvider

class StreamingLeftSemiJoinWithoutVCFSuite
  extends streaming.StreamingLeftSemiJoinWithoutVCFSuite with HoldfastAsProvider

class StreamingLeftSemiJoinWithVCFSuite
  extends streaming.StreamingLeftSemiJoinWithVCFSuite with HoldfastAsProvider

class StreamingLeftSemiJoinV4Suite
  extends streaming.StreamingLeftSemiJoinV4Suite with HoldfastAsProvider
