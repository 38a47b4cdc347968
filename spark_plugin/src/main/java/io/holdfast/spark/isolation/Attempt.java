package io.holdfast.spark.isolation;

import java.io.Serializable;

/**
 * An attempt of a task, as Spark's scheduler names it.
 *
 * @param number counts from 0 in each attempt of the stage
 */
public record Attempt(int stage, int stageAttempt, int partition, int number)
    implements Serializable {}
