/** The executor's side: managers that write files for state stores and regional pipelines. */
package io.holdfast.spark.executor;
