/** The differences between Spark's minors, and the check that this jar fits the running minor. */
package io.holdfast.spark.minor;
