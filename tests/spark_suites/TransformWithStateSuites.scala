package io.holdfast.spark.suites

import org.apache.spark.sql.streaming

class TransformWithStateValidationSuite
  extends streaming.TransformWithStateValidationSuite with HoldfastAsProvider
