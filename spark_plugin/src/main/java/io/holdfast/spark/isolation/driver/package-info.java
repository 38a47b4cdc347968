/** Partition isolation on the driver: what Spark tells the core's machine, and what it decides. */
package io.holdfast.spark.isolation.driver;
