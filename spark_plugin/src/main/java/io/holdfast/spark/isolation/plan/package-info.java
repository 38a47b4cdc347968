/** The rule that guards a stage: a batch completes although a partition's task keeps failing. */
package io.holdfast.spark.isolation.plan;
