package io.holdfast.spark.store;

import io.holdfast.spark.Native;

/**
 * The input of a batch while it is stored for later, instead of a commit. One task uses it. Closed
 * without {@link #finish}, it leaves bytes that a reclaim takes.
 */
public final class Parking implements AutoCloseable {
  /** Receives the finished parking: the store reports the files that were written. */
  private final Runnable finished;

  private final long parking;
  private long bytes;

  Parking(long parking, Runnable finished) {
    this.parking = parking;
    this.finished = finished;
  }

  /** Adds the first {@code length} of these bytes. The native side has at most 32 MiB in memory. */
  public void append(byte[] bytes, int length) {
    Native.appendInput(parking, bytes, length);
    this.bytes += length;
  }

  /** Bytes that were appended. */
  public long bytes() {
    return bytes;
  }

  /**
   * Ends the input of so many rows, and returns the id of the parked version. It is as durable as a
   * commit: at {@code commits/N}, against a crash of the machine.
   */
  public String finish(long rows) {
    String id = Native.finishParking(parking, rows);
    finished.run();
    return id;
  }

  @Override
  public void close() {
    Native.closeParking(parking);
  }
}
