/** Pending rows, for the command line and for metrics. */
package io.holdfast.spark.isolation.show;
