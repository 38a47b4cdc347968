/**
 * Partition isolation on the driver: facts from Spark for the core's machine, and its decisions.
 */
package io.holdfast.spark.isolation.driver;
