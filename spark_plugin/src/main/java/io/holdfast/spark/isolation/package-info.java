/**
 * Partition isolation: a batch completes although the task of one state partition keeps failing.
 * Runs on the driver (rule, decisions, markers) and in tasks (guard, parked input).
 */
package io.holdfast.spark.isolation;
