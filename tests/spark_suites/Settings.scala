package io.holdfast.spark.suites

import org.apache.spark.sql.internal.{SQLConf, StaticSQLConf}

/** Settings that every session of the suites must have, whatever a suite asks for. */
object Settings {
  /** That of the run: Holdfast's, or Spark's own to compare with. */
  val provider: String = System.getProperty(SQLConf.STATE_STORE_PROVIDER_CLASS.key)

  /** What Holdfast needs; Spark's suites switch services on the class path off. */
  val replacing: Map[String, String] = Map(
    SQLConf.STATE_STORE_PROVIDER_CLASS.key -> provider,
    SQLConf.STATE_STORE_CHECKPOINT_FORMAT_VERSION.key -> "2",
    StaticSQLConf.LOAD_SESSION_EXTENSIONS_FROM_CLASSPATH.key -> "true")

  /** A setting of a test, with Holdfast's value where a test must not choose. */
  def replaced(setting: (String, String)): (String, String) =
    (setting._1, replacing.getOrElse(setting._1, setting._2))
}
