package io.holdfast.spark.suites

import io.holdfast.spark.HoldfastStateStoreProvider
import org.apache.spark.holdfast.RememberingProvider
import org.apache.spark.sql.internal.{SQLConf, StaticSQLConf}

/** Settings that every session of the suites must have, whatever a suite asks for. */
object Settings {
  /** That of the run: Holdfast's, or Spark's own to compare with. */
  val provider: String = System.getProperty(SQLConf.STATE_STORE_PROVIDER_CLASS.key)

  /** For tests that open stores by themselves. */
  val providerWithoutQuery: String =
    if (provider == classOf[HoldfastStateStoreProvider].getName) {
      classOf[RememberingProvider].getName
    } else {
      provider
    }

  /** What Holdfast needs; Spark's suites switch services on the class path off. */
  val replacing: Map[String, String] = Map(
    SQLConf.STATE_STORE_PROVIDER_CLASS.key -> provider,
    SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key -> "2",
    StaticSQLConf.LOAD_SESSION_EXTENSIONS_FROM_CLASSPATH.key -> "true")

  // Private to Spark, so by name.
  private val ofSpark = Set("HDFSBackedStateStoreProvider", "RocksDBStateStoreProvider")
    .map("org.apache.spark.sql.execution.streaming.state." + _)

  /** A setting of a test, with Holdfast's value where a test must not choose. */
  def replaced(setting: (String, String)): (String, String) = setting match {
    // A test that has a provider of its own is about that one.
    case (SQLConf.STATE_STORE_PROVIDER_CLASS.key, own) if !ofSpark(own) => setting
    case (key, value) => (key, replacing.getOrElse(key, value))
  }
}
