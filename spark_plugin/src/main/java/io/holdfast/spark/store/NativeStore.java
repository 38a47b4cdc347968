package io.holdfast.spark.store;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.executor.ManagerTotals;
import io.holdfast.spark.executor.Replay;
import io.holdfast.spark.executor.StoreManagers;
import io.holdfast.spark.rpc.StoreSize;
import io.holdfast.spark.sparklog.ViewId;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.function.LongConsumer;
import java.util.function.Supplier;
import org.apache.spark.TaskContext;
import org.apache.spark.unsafe.Platform;
import org.apache.spark.util.TaskCompletionListener;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** One native state store, for every Spark minor. One task attempt uses it at a time. */
public final class NativeStore implements StoreManagers.OpenStore {
  private static final Logger LOG = LoggerFactory.getLogger(NativeStore.class);

  /** A task waits so long for another attempt that still uses the store. */
  private static final long LOCK_TIMEOUT_MS = 60_000;

  private static final int SCAN_BATCH_BYTES = 64 << 10;

  /** The user while no task uses the store. */
  private static final long UNUSED = Long.MIN_VALUE;

  /** {@code options} describe the only family, if there are no column families. */
  public record Identity(
      String operator, String partition, String store, boolean columns, int options) {
    @Override
    public String toString() {
      return "operator " + operator + ", partition " + partition + ", store " + store;
    }
  }

  /** The input of a batch that a parked version waits for; the version is the batch id + 1. */
  public record Pending(long version, long rows, long bytes) {}

  /**
   * Settings of a store.
   *
   * @param managers acquires the manager whenever the native store is opened
   * @param versionsInMemory between two tasks
   * @param minChangelogs at which a merge is due
   * @param journal whether commits record every operation
   * @param snapshots receives, after each maintenance, the version that loads from runs and a few
   *     changelogs; -1 if there is none
   */
  public record Settings(
      Supplier<StoreManagers.Manager> managers,
      int versionsInMemory,
      int minChangelogs,
      boolean journal,
      LongConsumer snapshots) {}

  private final Identity identity;
  private final Settings settings;
  private final Object maintaining = new Object(); // held by the one thread that maintains
  private long user = UNUSED;

  /** Null while the native store is closed. */
  private StoreManagers.Manager manager;

  private long store;

  /** Spark closed the store. The store remains open until the task that uses it ends. */
  private boolean dismissed;

  /** A user that only reads leaves nothing to maintain. */
  private boolean committed;

  /** The replay of the task that uses the store, or null. */
  private Replay replay;

  /** A pass of the replay is over, and its session is open for the next one. */
  private boolean betweenPasses;

  /** The id of the version whose rows the open session has put in, or null. */
  private String filled;

  /** Time of loads and commits so far. The native side counts no time. */
  private long loadNanos;

  private long commitNanos;

  public NativeStore(Identity identity, Settings settings) {
    this.identity = identity;
    this.settings = settings;
    open();
  }

  private void open() {
    StoreManagers.Manager fresh = settings.managers().get();
    try {
      store =
          Native.openStore(
              fresh.handle,
              identity.operator(),
              identity.partition(),
              identity.store(),
              identity.columns(),
              identity.options(),
              settings.journal());
    } catch (RuntimeException e) {
      fresh.close();
      throw e;
    }
    manager = fresh;
    manager.opened(this);
  }

  @Override
  public String toString() {
    return identity.toString();
  }

  /**
   * Makes the calling task the only user until it ends. A task that holds the store keeps it:
   * restore and save of one operator share it.
   *
   * @throws HoldfastException in a task that has failed or ended: its listeners ran already, or run
   *     at once when they are added, so no listener would release the store after its use
   */
  public void acquire() {
    TaskContext task = TaskContext.get();
    requireRunning(task);
    long holder = currentUser(task);
    boolean first = lock(holder);
    if (!first || task == null) {
      return;
    }
    // Complete mode reads the table after the commit, so the task keeps the store until its end.
    task.addTaskCompletionListener((TaskCompletionListener) ended -> unlock(holder));
    try {
      // The task may have failed since the check. If it ends from now on, it runs the listener.
      requireRunning(task);
    } catch (HoldfastException e) {
      unlock(holder);
      throw e;
    }
  }

  private void requireRunning(TaskContext task) {
    if (task != null && (task.isFailed() || task.isCompleted())) {
      String end = task.isCompleted() ? "ended" : "failed";
      throw new HoldfastException(
          "Task %s has %s: the state store of %s is not opened for it"
              .formatted(task.taskAttemptId(), end, identity));
    }
  }

  /** Releases the store at once if no task's end will do that. */
  public void releaseOutsideTask() {
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
    while (user != UNUSED) {
      long leftMs = (deadline - System.nanoTime()) / 1_000_000;
      if (leftMs <= 0) {
        throw new HoldfastException(
            ("State store of %s is still used by another attempt (user %s) after %s s; the task can"
                    + " be tried again")
                .formatted(identity, user, LOCK_TIMEOUT_MS / 1000));
      }
      try {
        wait(leftMs);
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
        throw new HoldfastException("Interrupted while waiting for state store of " + identity, e);
      }
    }
    if (manager == null) {
      // Spark closed it after this task received it.
      open();
    }
    user = wanted;
    return true;
  }

  private void unlock(long holder) {
    boolean forgets;
    synchronized (this) {
      if (user != holder) {
        return;
      }
      forgets = settings.versionsInMemory() == 0 && committed && !dismissed;
      committed = false;
      replay = null;
    }
    if (forgets) {
      // A merge needs versions in memory, and none is left for Spark's maintenance.
      try {
        maintain();
      } catch (RuntimeException e) {
        LOG.warn("Maintenance of the state store of {} failed", identity, e);
      }
    }
    synchronized (this) {
      try {
        boolean taskEnds = holder >= 0;
        if (taskEnds) {
          // Spark does not abort the session of a task that fails while it reads initial state, and
          // believes that a pass committed.
          betweenPasses = false;
          filled = null;
          abort();
        }
        if (dismissed) {
          closeNow();
        } else {
          Native.retain(store, settings.versionsInMemory());
        }
      } finally {
        user = UNUSED;
        notifyAll();
      }
    }
  }

  /** Makes the passes of a replay one session; null for a task that replays nothing. */
  public void follow(Replay ofTask) {
    replay = ofTask;
  }

  public void load(long version, String id) {
    if (betweenPasses) {
      return;
    }
    dropFilled();
    long start = System.nanoTime();
    warn(Native.load(store, version, id));
    noteKeys(id, Native.storeStats(store).keys());
    long nanos = System.nanoTime() - start;
    loadNanos += nanos;
    manager.totals().loadNanos.add(nanos);
    manager.lookAtCache();
  }

  private static void warn(String workedAround) {
    if (workedAround != null) {
      LOG.warn("Holdfast found damage and worked around it: {}", workedAround);
    }
  }

  public String ownId(long version, String[] ids) {
    return Native.ownId(store, version, ids);
  }

  public void replay(long fromVersion, String fromId, String toId, String[] ids) {
    refuseViews(fromId, toId);
    refuseViews(ids);
    Native.replay(store, fromVersion, fromId, toId, ids);
  }

  byte[] changes(long version, String[] ids, int family, int options) {
    refuseViews(ids);
    return Native.changes(store, version, ids, family, options);
  }

  private void refuseViews(String... ids) {
    if (Arrays.stream(ids).anyMatch(ViewId::is)) {
      throw new UnsupportedStateException(
          String.format(
              "The state of %s got another number of partitions in this batch. The batch cannot be"
                  + " parked or replayed, and has no changes. The next batch moves the rows.",
              identity));
    }
  }

  public void openEmpty(long version) {
    if (!betweenPasses) {
      dropFilled();
      Native.openEmpty(store, version);
    }
  }

  /** Says that the open session has put in the rows of a version. The next begin continues it. */
  public void setFilled(String id) {
    filled = id;
  }

  public boolean isFilled(String id) {
    return id.equals(filled);
  }

  private void dropFilled() {
    if (filled != null) {
      filled = null;
      abort();
    }
  }

  void begin() {
    if (betweenPasses || filled != null) {
      betweenPasses = false;
      filled = null;
      return;
    }
    int wants = Native.begin(store);
    if ((wants & Native.WANTS_HYDRATION) != 0) {
      manager.hydrate(store, identity);
    }
    // If no version stays in memory, the end of the task merges.
    if ((wants & Native.WANTS_MERGE) != 0 && settings.versionsInMemory() > 0) {
      manager.mergeSoon(this, this::maintain);
    }
  }

  public int findFamily(String family) {
    return Native.findFamily(store, family);
  }

  int openFamily(String family, int options) {
    return Native.openFamily(store, family, options);
  }

  boolean removeFamily(String family) {
    return Native.removeFamily(store, family);
  }

  String[] familyNames() {
    return Native.familyNames(store);
  }

  /** Returns the id; null at the end of a pass that another pass follows. */
  String commit() {
    if (replay != null && replay.goesOn()) {
      betweenPasses = true;
      return null;
    }
    if (replay != null) {
      markReplayed();
    }
    long start = System.nanoTime();
    String id = Native.commit(store);
    if (replay != null) {
      id = Native.waitingFor(id, replay.kept());
    }
    committed = true;
    noteKeys(id, Native.storeStats(store).keys());
    long nanos = System.nanoTime() - start;
    commitNanos += nanos;
    manager.totals().appendNanos.add(nanos);
    warn(Native.takeWarning(store));
    manager.written();
    manager.lookAtCache();
    return id;
  }

  void abort() {
    Native.abort(store);
  }

  /**
   * Begins to park the version after {@code version}, which gets the content of this one. The input
   * of its batch is stored with it. Loads no state, so a damaged store can be parked. The caller
   * holds the store, see {@link #acquire}.
   *
   * @param id null for version 0
   */
  public Parking park(long version, String id) {
    refuseViews(id);
    return new Parking(
        Native.park(store, version, id),
        () -> {
          committed = true;
          manager.written();
        });
  }

  /** Begins to store a part of a version's input again, with a replay's {@code commit}. */
  public Parking keep(long version, long commit) {
    return new Parking(Native.keep(store, version, commit), manager::written);
  }

  /** The input that a version waits for, oldest first; none if it is not parked. */
  public List<Pending> pending(String id) {
    long[] found = Native.pending(store, id);
    List<Pending> pending = new ArrayList<>();
    for (int i = 0; i < found.length; i += 3) {
      pending.add(new Pending(found[i], found[i + 1], found[i + 2]));
    }
    return pending;
  }

  /** Number of keys of a version that a task here opened or made lately; else 0. Loads nothing. */
  public long knownKeys(String id) {
    return manager.keys.get(toString(), id);
  }

  public void noteKeys(String id, long keys) {
    manager.keys.note(toString(), id, keys);
  }

  /** The caller closes the stream. */
  public InputStream pendingInput(String id, long version) {
    return new PendingInput(Native.openPending(store, id, version));
  }

  /** Says that the open session has replayed all pending input. Before, it cannot commit. */
  public void markReplayed() {
    Native.markReplayed(store);
  }

  /** Closes the store when no task uses it: Spark's maintenance closes stores that tasks use. */
  public synchronized void close() {
    dismissed = true;
    boolean taskUsesIt = user >= 0;
    if (!taskUsesIt) {
      closeNow();
    }
  }

  private void closeNow() {
    if (manager != null) {
      manager.closed(this);
      Native.closeStore(store);
      manager.close();
      manager = null;
    }
  }

  public void maintain() {
    synchronized (maintaining) {
      settings.snapshots().accept(mergeChangelogs());
    }
  }

  private long mergeChangelogs() {
    StoreManagers.Manager held;
    synchronized (this) {
      held = manager;
    }
    if (held == null || held.isOver()) {
      return -1;
    }
    held.beginMaintenance();
    try {
      return Native.mergeChangelogs(store, settings.minChangelogs(), held.wasteful);
    } finally {
      held.endMaintenance();
      held.written();
    }
  }

  @Override
  public synchronized StoreSize size() {
    long bytes = manager == null ? 0 : Native.storeStats(store).storedBytes();
    return new StoreSize(
        Long.parseLong(identity.operator()),
        Integer.parseInt(identity.partition()),
        identity.store(),
        bytes);
  }

  public TimedStats stats() {
    return new TimedStats(Native.storeStats(store), loadNanos / 1_000_000, commitNanos / 1_000_000);
  }

  ManagerTotals takeTotals(long version) {
    return manager.takeTotals(version);
  }

  /** Copies the value; null without such a key. */
  byte[] get(int family, Bytes key) {
    Scratch scratch = Scratch.current();
    long address = scratch.reserve(key.length());
    key.copyTo(address);
    int room = scratch.capacity() - key.length();
    int found = Native.get(store, family, address, key.length(), address + key.length(), room);
    if (found > room) {
      address = scratch.reserve(Math.addExact(key.length(), found));
      found = Native.get(store, family, address, key.length(), address + key.length(), found);
    }
    if (found < 0) {
      return null;
    }
    // A new array: callers may keep the row's bytes beyond the next get.
    byte[] value = new byte[found];
    Platform.copyMemory(null, address + key.length(), value, Platform.BYTE_ARRAY_OFFSET, found);
    return value;
  }

  boolean contains(int family, Bytes key) {
    long address = toScratch(key);
    return Native.get(store, family, address, key.length(), 0, 0) >= 0;
  }

  void put(int family, Bytes key, Bytes value) {
    long address = Scratch.current().reserve(Math.addExact(key.length(), value.length()));
    key.copyTo(address);
    value.copyTo(address + key.length());
    Native.put(store, family, address, key.length(), address + key.length(), value.length());
  }

  void writeList(int family, Bytes key, List<Bytes> values, boolean append) {
    int total = 0;
    for (Bytes value : values) {
      total = Math.addExact(total, Math.addExact(value.length(), 4));
    }
    long address = Scratch.current().reserve(Math.addExact(key.length(), total));
    key.copyTo(address);
    long at = address + key.length();
    for (Bytes value : values) {
      Platform.putInt(null, at, value.length());
      value.copyTo(at + 4);
      at += 4 + value.length();
    }
    Native.writeList(store, family, address, key.length(), address + key.length(), total, append);
  }

  void remove(int family, Bytes key) {
    Native.remove(store, family, toScratch(key), key.length());
  }

  private static long toScratch(Bytes bytes) {
    long address = Scratch.current().reserve(bytes.length());
    bytes.copyTo(address);
    return address;
  }

  /**
   * Begins a scan of entries as they are now: later changes do not show.
   *
   * @param what one of {@link Native}'s {@code SCAN_} constants
   * @param from null for no bound; {@code to} as well
   */
  Scan scan(int family, int what, Bytes from, Bytes to) {
    return new Scan(family, what, from, to);
  }

  final class Scan implements AutoCloseable {
    private final long[] progress = new long[2];
    private byte[] batch;
    private int position;
    private int left;

    private Scan(int family, int what, Bytes from, Bytes to) {
      int fromBytes = from == null ? 0 : from.length();
      long address =
          Scratch.current().reserve(Math.addExact(fromBytes, to == null ? 0 : to.length()));
      if (from != null) {
        from.copyTo(address);
      }
      if (to != null) {
        to.copyTo(address + fromBytes);
      }
      batch =
          Native.scan(
              store,
              family,
              what,
              address,
              from == null ? -1 : fromBytes,
              address + fromBytes,
              to == null ? -1 : to.length(),
              SCAN_BATCH_BYTES,
              progress);
      left = (int) progress[1];
    }

    boolean hasNext() {
      if (left == 0 && progress[0] != 0) {
        // A new array for each batch: earlier rows stay valid.
        batch = Native.scanOn(store, (int) progress[0], SCAN_BATCH_BYTES, progress);
        position = 0;
        left = (int) progress[1];
      }
      return left > 0;
    }

    /** Call only after {@link #hasNext} returned true. */
    void next(EntryReader reader) {
      long at = Platform.BYTE_ARRAY_OFFSET + (long) position;
      int keyBytes = Platform.getInt(batch, at);
      int valueBytes = Platform.getInt(batch, at + 4);
      int keyAt = position + 8;
      position = keyAt + keyBytes + valueBytes;
      left--;
      reader.read(batch, keyAt, keyBytes, keyAt + keyBytes, valueBytes);
    }

    @Override
    public void close() {
      if (progress[0] != 0) {
        Native.closeScan(store, (int) progress[0]);
        progress[0] = 0;
      }
      left = 0;
    }
  }

  /** Receives an entry of a scan: two ranges of an array that nothing overwrites. */
  interface EntryReader {
    void read(byte[] bytes, int keyAt, int keyBytes, int valueAt, int valueBytes);
  }
}
