package io.holdfast.spark.suites

import org.apache.spark.sql.streaming

class TransformWithStateUnsafeRowSuite
  extends streaming.TransformWithStateUnsafeRowSuite with HoldfastAsProvider

class TransformWithStateValidationSuite
  extends streaming.TransformWithStateValidationSuite with HoldfastAsProvider
