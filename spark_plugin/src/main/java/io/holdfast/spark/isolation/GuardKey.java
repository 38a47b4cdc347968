package io.holdfast.spark.isolation;

import java.io.Serializable;
import java.util.UUID;

/** Names a guarded operator in one batch of one run of a query. */
public record GuardKey(UUID run, long batch, long operator) implements Serializable {}
