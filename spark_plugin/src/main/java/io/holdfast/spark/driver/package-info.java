/**
 * The driver's side: terms, durability and clean-up of files, Spark's commit log, and pipelines.
 */
package io.holdfast.spark.driver;
