package io.holdfast.spark.suites

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
    try run
    finally {
      val providers = seen.toArray.map(_.toString).sorted.mkString(",")
      val line = s"$suite\t${test.replaceAll("\\s+", " ")}\t$providers\n"
      Files.write(file, line.getBytes(UTF_8), StandardOpenOption.CREATE, StandardOpenOption.APPEND)
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
