package io.holdfast.spark.suites

import org.apache.spark.SparkConf
import org.apache.spark.sql.Dataset
import org.apache.spark.sql.execution.streaming.sources.MemorySink
import org.apache.spark.sql.streaming.{OutputMode, StreamTest}
import org.scalatest.{Args, Status}

/**
 * Puts Holdfast in the place of the provider that a suite of Spark asks for.
 *
 * The JVM has Holdfast's settings as system properties, so every session starts with them. Suites
 * name another provider, or checkpoint format 1, in three places; here they get Holdfast's.
 */
trait HoldfastAsProvider extends StreamTest {
  override protected def sparkConf: SparkConf =
    Settings.replacing.foldLeft(super.sparkConf) { case (conf, (key, value)) =>
      conf.set(key, value)
    }

  override protected def withSQLConf[T](pairs: (String, String)*)(f: => T): T =
    super.withSQLConf(pairs.map(Settings.replaced): _*)(f)

  override def testStream(
      stream: Dataset[_],
      outputMode: OutputMode,
      extraOptions: Map[String, String],
      sink: MemorySink)(actions: StreamAction*): Unit =
    super.testStream(stream, outputMode, extraOptions, sink)(actions.map {
      case start: StartStream =>
        start.copy(additionalConfs = start.additionalConfs.map(Settings.replaced))
      case other => other
    }: _*)

  override def runTest(testName: String, args: Args): Status =
    StoresSeen.during(getClass.getSimpleName, testName)(super.runTest(testName, args))
}
