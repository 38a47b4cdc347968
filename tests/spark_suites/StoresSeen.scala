package io.holdfast.spark.suites

import java.io.File
import java.nio.charset.StandardCharsets.UTF_8
import java.nio.file.{Files, Path, StandardOpenOption}
import java.util.concurrent.ConcurrentHashMap

import org.apache.logging.log4j.{Level, LogManager}
import org.apache.logging.log4j.core.{LogEvent, LoggerContext}
import org.apache.logging.log4j.core.appender.AbstractAppender
import org.apache.logging.log4j.core.config.Property
import org.scalatest.Status

/**
 * Which providers opened stores during a test, by what they log: a test that passes on another
 * provider proves nothing about Holdfast.
 *
 * Each test appends a line to the file of the system property `holdfast.suites.seen`: suite, test
 * and providers, with tabs between.
 */
object StoresSeen {
  private val state = "org.apache.spark.sql.execution.streaming.state."
  private val loggers = Map(
    "io.holdfast.spark.executor.OpenManager" -> "Holdfast",
    state + "HDFSBackedStateStoreProvider" -> "HDFSBacked",
    state + "RocksDB" -> "RocksDB")

  private val seen = ConcurrentHashMap.newKeySet[String]()
  private lazy val file = Path.of(System.getProperty("holdfast.suites.seen"))
  private lazy val listening: Unit = listen()

  def during(suite: String, test: String)(run: => Status): Status = {
    listening
    seen.clear()
    val earlier = logsOfExecutors
    try run
    finally {
      (logsOfExecutors -- earlier).foreach(read)
      val providers = seen.toArray.map(_.toString).sorted.mkString(",")
      val line = s"$suite\t${test.replaceAll("\\s+", " ")}\t$providers\n"
      Files.write(file, line.getBytes(UTF_8), StandardOpenOption.CREATE, StandardOpenOption.APPEND)
    }
  }

  /** Executors in JVMs of their own log to `worker-ID/APPLICATION/EXECUTOR/stderr`. */
  private def logsOfExecutors: Set[Path] = {
    val workers = within(new File(System.getProperty("java.io.tmpdir")))
      .filter(_.getName.startsWith("worker-"))
    val executors = workers.flatMap(within).flatMap(within)
    executors.map(_.toPath.resolve("stderr")).filter(Files.exists(_)).toSet
  }

  private def within(folder: File): Seq[File] =
    Option(folder.listFiles).map(_.toSeq).getOrElse(Seq.empty)

  /** Lines there have the name of a logger without its package. */
  private def read(log: Path): Unit = {
    val text = Files.readString(log)
    loggers.foreach { case (logger, provider) =>
      if (text.contains(s" ${logger.drop(logger.lastIndexOf('.') + 1)}")) seen.add(provider)
    }
  }

  private def listen(): Unit = {
    val appender = new AbstractAppender("providers", null, null, true, Property.EMPTY_ARRAY) {
      override def append(event: LogEvent): Unit =
        loggers.foreach { case (logger, provider) =>
          if (event.getLoggerName.startsWith(logger)) seen.add(provider)
        }
    }
    appender.start()
    val context = LogManager.getContext(false).asInstanceOf[LoggerContext]
    context.getConfiguration.getRootLogger.addAppender(appender, Level.INFO, null)
    context.updateLoggers()
  }
}
