/** Messages between driver and executors, and their way: runs on both. */
package io.holdfast.spark.rpc;
