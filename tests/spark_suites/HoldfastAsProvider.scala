package io.holdfast.spark.suites

import org.apache.spark.SparkConf
import org.apache.spark.holdfast.SessionOnMaster
import org.apache.spark.sql.Dataset
import org.apache.spark.sql.execution.streaming.sources.MemorySink
import org.apache.spark.sql.streaming.{OutputMode, StreamTest}
import org.scalatest.{Args, Ignore, Status}
import org.scalatest.time.{Seconds, Span}

/**
 * Puts Holdfast in the place of the provider that a suite of Spark asks for.
 *
 * The JVM has Holdfast's settings as system properties, so every session starts with them. Suites
 * name another provider, or checkpoint format 1, in three places; here they get Holdfast's.
 */
trait HoldfastAsProvider extends StreamTest with HoldfastInSessions {
  /** Shorter where failures are isolated: tests that wait for one wait in vain. */
  override val streamingTimeout: Span =
    Span(Integer.getInteger("holdfast.suites.timeoutSeconds", 120).toLong, Seconds)

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
}

/** The two of these places that suites without `testStream` have. */
trait HoldfastInSessions extends SessionOnMaster {
  override protected def sparkConf: SparkConf =
    Settings.replacing.foldLeft(super.sparkConf) { case (conf, (key, value)) =>
      conf.set(key, value)
    }

  override protected def withSQLConf[T](pairs: (String, String)*)(f: => T): T =
    super.withSQLConf(pairs.map(Settings.replaced): _*)(f)

  /** Whether a test may have state, of a suite that is mostly about something else. */
  protected def mayHaveState(test: String): Boolean = true

  override def tags: Map[String, Set[String]] = {
    val all = testNames
    // Suites repeat tests with RocksDB's changelog switched off, which is nothing to Holdfast.
    val repeated = all.filter { name =>
      val withChangelog = name
        .replace("(without changelog checkpointing)", "(with changelog checkpointing)")
        .replace("changelog checkpointing = false", "changelog checkpointing = true")
      withChangelog != name && all(withChangelog)
    }
    val left = repeated ++ all.filterNot(mayHaveState)
    super.tags ++ left.map(_ -> Set(classOf[Ignore].getName))
  }

  override def runTest(testName: String, args: Args): Status =
    StoresSeen.during(getClass.getSimpleName, testName)(super.runTest(testName, args))
}
