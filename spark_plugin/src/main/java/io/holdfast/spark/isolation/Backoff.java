package io.holdfast.spark.isolation;

/**
 * When a parked partition is tried again: 1, 2, 4, ... batches after the last try.
 *
 * @param pause batches between the last try and the next
 * @param next batch of the next try
 */
record Backoff(long pause, long next) {
  static Backoff first(long batch) {
    return new Backoff(1, batch + 1);
  }

  Backoff failedAgain(long batch) {
    return new Backoff(2 * pause, batch + 2 * pause);
  }
}
