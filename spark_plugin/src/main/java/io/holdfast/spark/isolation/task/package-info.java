/** Partition isolation in tasks: the guard of a stage, and input that is parked and replayed. */
package io.holdfast.spark.isolation.task;
