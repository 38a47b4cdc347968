/** Plan nodes that take the place of Spark's own on the driver; executors run them. */
package io.holdfast.spark.plan;
