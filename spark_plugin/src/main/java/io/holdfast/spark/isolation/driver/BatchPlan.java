package io.holdfast.spark.isolation.driver;

import java.util.List;
import java.util.Map;

/** A guarded operator in one batch, as the core reads it: {@code Plan} in its messages.rs. */
public record BatchPlan(
    long operator,
    String name,
    Map<String, Long> times,
    Map<Integer, List<Long>> pending,
    int partitions,
    boolean seals,
    boolean divides,
    boolean rerun,
    boolean rerunsPark,
    long retained,
    Limits limits) {
  /** How much may fail, and be parked. */
  public record Limits(int attempts, int batches, int parked) {}
}
