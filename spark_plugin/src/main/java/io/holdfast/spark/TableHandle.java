package io.holdfast.spark;

import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * One native state store: rows in, rows out, used by one task attempt at a time. Independent of the
 * Spark minor.
 */
final class TableHandle {
  private static final Logger LOG = LoggerFactory.getLogger(TableHandle.class);

  /** How long a task waits for another attempt that still uses the store. */
  private static final long LOCK_TIMEOUT_MS = 60_000;

  private static final int SCAN_BATCH_BYTES = 64 << 10;
  private static final long NOBODY = Long.MIN_VALUE;

  private final HoldfastExecutor.Lease lease;
  private final long store;
  private final String name;
  private long user = NOBODY;

  TableHandle(
      HoldfastExecutor.Lease lease, String operator, String partition, String storeName) {
    this.lease = lease;
    store = Native.openStore(lease.manager, operator, partition, storeName);
    name = "operator " + operator + ", partition " + partition + ", store " + storeName;
  }

  @Override
  public String toString() {
    return name;
  }

  /**
   * Makes the calling task the only user until it ends. A task that holds the store already goes
   * on holding it: restore and save side of one operator share it.
   */
  void acquire() {
    TaskContext task = TaskContext.get();
    boolean first = lock(currentUser(task));
    if (first && task != null) {
      long holder = currentUser(task);
      // Output modes that emit the whole table read it after commit: hold on to the task's end.
      task.addTaskCompletionListener((TaskCompletionListener) ended -> unlock(holder));
    }
  }

  /** Gives the store back at once where no task's end will do it. */
  void releaseOutsideTask() {
    if (TaskContext.get() == null) {
      unlock(currentUser(null));
    }
  }

  private static long currentUser(TaskContext task) {
    return task == null ? -1 - Thread.currentThread().getId() : task.taskAttemptId();
  }

  private synchronized boolean lock(long wanted) {
    if (user == wanted) {
      return false;
    }
    long deadline = System.nanoTime() + LOCK_TIMEOUT_MS * 1_000_000;
    while (user != NOBODY) {
      long leftMs = (deadline - System.nanoTime()) / 1_000_000;
      if (leftMs <= 0) {
        throw new HoldfastException(
            "State store of "
                + name
                + " is still used by another attempt (user "
                + user
                + ") after "
                + LOCK_TIMEOUT_MS / 1000
                + " s; the task can be tried again");
      }
      try {
        wait(leftMs);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new HoldfastException("Interrupted while waiting for state store of " + name, e);
      }
    }
    user = wanted;
    return true;
  }

  private synchronized void unlock(long holder) {
    if (user == holder) {
      user = NOBODY;
      notifyAll();
    }
  }

  void load(long version, String id) {
    String workedAround = Native.load(store, version, id);
    if (workedAround != null) {
      LOG.warn("Holdfast found damage and worked around it: {}", workedAround);
    }
  }

  void begin() {
    Native.begin(store);
  }

  String commit() {
    String id = Native.commit(store);
    lease.reportLostFiles();
    return id;
  }

  void abort() {
    Native.abort(store);
  }

  void close() {
    Native.closeStore(store);
    lease.close();
  }

  long writeBaseImage(int minChangelogs) {
    try {
      return Native.writeBaseImage(store, minChangelogs);
    } finally {
      lease.reportLostFiles();
    }
  }

  long[] stats() {
    return Native.storeStats(store);
  }

  /** Points {@code into} at a copy of the value; false without such a key. */
  boolean get(UnsafeRow key, UnsafeRow into) {
    int keyBytes = key.getSizeInBytes();
    Scratch scratch = Scratch.current();
    long address = scratch.reserve(keyBytes);
    Scratch.write(key, address);
    int room = scratch.capacity() - keyBytes;
    int found = Native.get(store, address, keyBytes, address + keyBytes, room);
    if (found > room) {
      address = scratch.reserve(Math.addExact(keyBytes, found));
      found = Native.get(store, address, keyBytes, address + keyBytes, found);
    }
    if (found < 0) {
      return false;
    }
    // A fresh array: callers may keep what the row points to after the next get.
    byte[] value = new byte[found];
    Platform.copyMemory(null, address + keyBytes, value, Platform.BYTE_ARRAY_OFFSET, found);
    into.pointTo(value, found);
    return true;
  }

  boolean contains(UnsafeRow key) {
    int keyBytes = key.getSizeInBytes();
    long address = Scratch.current().reserve(keyBytes);
    Scratch.write(key, address);
    return Native.get(store, address, keyBytes, 0, 0) >= 0;
  }

  void put(UnsafeRow key, UnsafeRow value) {
    int keyBytes = key.getSizeInBytes();
    int valueBytes = value.getSizeInBytes();
    long address = Scratch.current().reserve(Math.addExact(keyBytes, valueBytes));
    Scratch.write(key, address);
    Scratch.write(value, address + keyBytes);
    Native.put(store, address, keyBytes, address + keyBytes, valueBytes);
  }

  void remove(UnsafeRow key) {
    int keyBytes = key.getSizeInBytes();
    long address = Scratch.current().reserve(keyBytes);
    Scratch.write(key, address);
    Native.remove(store, address, keyBytes);
  }

  /** A pass over all entries; entries removed meanwhile are skipped. */
  Scan scan() {
    return new Scan();
  }

  final class Scan {
    private final int end = Native.scanEnd(store);
    private final long[] progress = new long[2];
    private byte[] batch = new byte[0];
    private int position;
    private int next;
    private int left;

    boolean hasNext() {
      while (left == 0 && next < end) {
        // A fresh array per batch: rows handed out earlier stay valid.
        batch = Native.scan(store, next, end, SCAN_BATCH_BYTES, progress);
        next = (int) progress[0];
        left = (int) progress[1];
        position = 0;
      }
      return left > 0;
    }

    /** Points both rows at the next entry. Call only after {@link #hasNext} said yes. */
    void next(UnsafeRow key, UnsafeRow value) {
      long at = Platform.BYTE_ARRAY_OFFSET + position;
      int keyBytes = Platform.getInt(batch, at);
      int valueBytes = Platform.getInt(batch, at + 4);
      key.pointTo(batch, at + 8, keyBytes);
      value.pointTo(batch, at + 8 + keyBytes, valueBytes);
      position += 8 + keyBytes + valueBytes;
      left--;
    }
  }
}
