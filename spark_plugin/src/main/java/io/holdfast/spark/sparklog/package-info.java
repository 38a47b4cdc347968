/** Spark's own log files of a checkpoint: makes their entries durable, and reads them again. */
package io.holdfast.spark.sparklog;
