package io.holdfast.spark.store;

import io.holdfast.spark.Native;

/**
 * The input of a batch while it is stored for later, instead of a commit. One task uses it. If it
 * is closed without {@link #finish}, clean-up deletes its bytes.
 */
public final class Parking implements AutoCloseable {
  /** The store then reports the files that were written. */
  private final Runnable finished;

  private final long parking;
  private long bytes;

  Parking(long parking, Runnable finished) {
    this.parking = parking;
    this.finished = finished;
  }

  /** The native side has at most 32 MiB in memory. */
  public void append(byte[] bytes, int length) {
    Native.appendInput(parking, bytes, length);
    this.bytes += length;
  }

  public long bytes() {
    return bytes;
  }

  /**
   * Returns the id of the parked version, which is as durable as a commit: at {@code commits/N},
   * against a crash of the machine.
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
