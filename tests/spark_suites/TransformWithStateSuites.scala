package io.holdfast.spark.suites

import org.apache.spark.SparkConf
import org.apache.spark.sql.streaming

class TransformWithStateUnsafeRowSuite
  extends streaming.TransformWithStateUnsafeRowSuite with HoldfastAsProvider

class TransformWithStateAvroSuite
  extends streaming.TransformWithStateAvroSuite with HoldfastAsProvider

class TransformWithStateInitialStateSuite
  extends streaming.TransformWithStateInitialStateSuite with HoldfastAsProvider

class TransformWithStateChainingSuite
  extends streaming.TransformWithStateChainingSuite with HoldfastAsProvider

class TransformWithStateValidationSuite
  extends streaming.TransformWithStateValidationSuite with HoldfastAsProvider

class TransformWithListStateSuite
  extends streaming.TransformWithListStateSuite with HoldfastAsProvider

class TransformWithMapStateSuite
  extends streaming.TransformWithMapStateSuite with HoldfastAsProvider

class TransformWithValueStateTTLSuite
  extends streaming.TransformWithValueStateTTLSuite with HoldfastAsProvider

class TransformWithListStateTTLSuite
  extends streaming.TransformWithListStateTTLSuite with HoldfastAsProvider

class TransformWithMapStateTTLSuite
  extends streaming.TransformWithMapStateTTLSuite with HoldfastAsProvider

/** On executors in JVMs of their own. */
class TransformWithStateClusterSuite
  extends streaming.TransformWithStateClusterSuite with HoldfastAsProvider {
  override def getSparkConf(): SparkConf = super.getSparkConf().setAll(Settings.replacing)
}
