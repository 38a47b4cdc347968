// Spark's test session is private to Spark.
package org.apache.spark.holdfast

import org.apache.spark.SparkContext
import org.apache.spark.sql.test.{SharedSparkSession, TestSparkSession}

/** Starts the session on the master that the command names, if it does: Spark's has no retries. */
trait SessionOnMaster extends SharedSparkSession {
  override protected def createSparkSession: TestSparkSession =
    Option(System.getProperty("holdfast.suites.master")).fold(super.createSparkSession) { master =>
      val conf = sparkConf.set("spark.sql.testkey", "true")
      new TestSparkSession(new SparkContext(master, "test-sql-context", conf))
    }
}
