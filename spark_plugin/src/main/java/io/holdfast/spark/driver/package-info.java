/** The driver's side: terms, durable files and their clean-up, the commit log, and pipelines. */
package io.holdfast.spark.driver;
