package io.holdfast.spark.suites

import org.apache.spark.sql.execution.streaming.state
import org.apache.spark.sql.internal.SQLConf

// What an operator does with its stores, without a query: the tests open stores by themselves.

trait HoldfastWithoutQuery extends HoldfastAsProvider {
  private val own = SQLConf.STATE_STORE_PROVIDER_CLASS.key -> Settings.providerWithoutQuery

  override protected def withSQLConf[T](pairs: (String, String)*)(f: => T): T =
    super.withSQLConf(pairs :+ own: _*)(f)
}

class SymmetricHashJoinStateManagerSuite
  extends state.SymmetricHashJoinStateManagerSuite with HoldfastWithoutQuery

class SymmetricHashJoinStateManagerEventTimeInKeySuite
  extends state.SymmetricHashJoinStateManagerEventTimeInKeySuite with HoldfastWithoutQuery

class SymmetricHashJoinStateManagerEventTimeInValueSuite
  extends state.SymmetricHashJoinStateManagerEventTimeInValueSuite with HoldfastWithoutQuery
