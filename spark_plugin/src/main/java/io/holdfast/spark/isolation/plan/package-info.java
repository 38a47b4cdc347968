/**
 * Partition isolation on the driver: the rule that guards a stage, so that a batch completes although
 * the task of one state partition keeps failing.
 */
package io.holdfast.spark.isolation.plan;
