/**
 * The rule that guards a stage, so that a batch completes although a partition's task keeps
 * failing.
 */
package io.holdfast.spark.isolation.plan;
