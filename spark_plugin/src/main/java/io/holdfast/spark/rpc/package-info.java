/** What driver and executors say to each other, and how it gets there: runs on both. */
package io.holdfast.spark.rpc;
