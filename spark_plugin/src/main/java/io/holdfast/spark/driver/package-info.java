/**
 * The driver's side: terms, durability and clean-up of files, entries of the commit log as Spark
 * writes them, and the open regional pipelines.
 */
package io.holdfast.spark.driver;
