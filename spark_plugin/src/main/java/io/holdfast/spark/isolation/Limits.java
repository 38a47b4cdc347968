package io.holdfast.spark.isolation;

import io.holdfast.spark.HoldfastConf;

/**
 * How far isolation goes.
 *
 * @param attempts failures of a task in one batch after which its partition is parked
 */
record Limits(
    double parkedRatio, int batchesMax, long bytesMax, boolean rerunsPark, int attempts) {
  /**
   * @param failuresMax failures of a task after which Spark ends the job
   */
  static Limits of(HoldfastConf conf, int failuresMax) {
    return new Limits(
        conf.isolationMaxRatio,
        conf.isolationMaxBatches,
        conf.isolationMaxBytes,
        conf.isolationRerunsPark,
        Math.min(conf.isolationAttempts, failuresMax - 1));
  }

  /** At least one partition, and never all. */
  int parkedMax(int partitions) {
    // 0.29 of 100 are 29, which floats make 28.
    int share = (int) Math.floor(parkedRatio * partitions + 1e-9);
    return Math.min(partitions - 1, Math.max(1, share));
  }
}
