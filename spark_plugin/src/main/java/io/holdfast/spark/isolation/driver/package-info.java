/** Isolation on the driver: Spark's facts for the core's machine, and the machine's decisions. */
package io.holdfast.spark.isolation.driver;
