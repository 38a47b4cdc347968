/** Plan nodes that the driver puts in the place of Spark's own; executors run them. */
package io.holdfast.spark.plan;
