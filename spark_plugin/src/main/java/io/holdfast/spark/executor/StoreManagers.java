package io.holdfast.spark.executor;

import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.Native;
import io.holdfast.spark.files.FileId;
import io.holdfast.spark.files.SegmentFolder;
import io.holdfast.spark.files.WriterStats;
import io.holdfast.spark.rpc.DriverLink;
import io.holdfast.spark.rpc.ExecutorLink;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.rpc.LostFiles;
import io.holdfast.spark.rpc.TermRequest;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Executor side of state stores: one manager per checkpoint root, shared by all stores of the
 * executor. That is what lets hundreds of partitions write into one file.
 */
public final class StoreManagers {
  private static final Logger LOG = LoggerFactory.getLogger(StoreManagers.class);

  /** A manager that no store uses for this long is sealed and closed. */
  private static final long IDLE_MS = 60_000;

  /**
   * Maintenance is over when it came to no store for this long: Spark's threads go from one to the
   * next at once, and do not say which is the last.
   */
  private static final long QUIET_MS = 2_000;

  private static final class Manager extends OpenManager {
    int users;
    long idleSinceMs;

    /** The run of a query that acquired it last. */
    UUID run;

    /** The executor ends: maintenance that still runs has nothing to write to any more. */
    volatile boolean closed;

    /** Files that should go, from the driver's last notice. */
    volatile FileId[] wasteful = {};

    /** Bytes that no retained batch needs any more, from the driver's last notice. */
    volatile long pinnedBytes;

    final LongAdder unreportedSealNanos = new LongAdder();

    /** Stores that are being maintained. */
    private int maintained;

    private long maintainedAtNanos;
    private boolean awaitsQuiet;
    private long pinnedReportedAt = -1;
    private WriterStats reported = WriterStats.NOTHING;

    Manager(String dir, long term, long handle) {
      super(dir, term, handle);
    }

    @Override
    String[] sealFiles() {
      Native.seal(handle);
      return Native.takeWarnings(handle);
    }

    synchronized void beginMaintenance() {
      maintained++;
    }

    synchronized void endMaintenance() {
      maintained--;
      maintainedAtNanos = System.nanoTime();
    }

    /** True for the one that is to wait until maintenance is over. */
    synchronized boolean awaitQuiet() {
      boolean first = !awaitsQuiet;
      awaitsQuiet = true;
      return first;
    }

    /** Whether maintenance is over; {@link #awaitQuiet} begins anew then. */
    synchronized boolean isQuiet() {
      long restedMs = (System.nanoTime() - maintainedAtNanos) / 1_000_000;
      boolean quiet = maintained == 0 && restedMs >= QUIET_MS;
      awaitsQuiet = !quiet;
      return quiet;
    }

    /** What the writer did since this was last asked. */
    synchronized WriterStats takeStats() {
      WriterStats now = Native.writerStats(handle);
      WriterStats fresh = now.minus(reported);
      reported = now;
      return fresh;
    }

    /** Once per version, so that the sum over all tasks of a batch is right. */
    synchronized long takePinnedBytes(long version) {
      if (version == pinnedReportedAt) {
        return 0;
      }
      pinnedReportedAt = version;
      return pinnedBytes;
    }
  }

  /** A store's share of a manager, until closed. */
  public final class Lease implements AutoCloseable {
    public final long manager;
    private final Manager shared;

    private Lease(Manager shared) {
      this.shared = shared;
      manager = shared.handle;
    }

    public boolean isOver() {
      return shared.closed;
    }

    public ExecutorTotals totals() {
      return totals;
    }

    /** Files that should go. */
    public FileId[] wasteful() {
      return shared.wasteful;
    }

    public ManagerTotals takeTotals(long version) {
      return new ManagerTotals(
          shared.takeStats(),
          shared.unreportedSealNanos.sumThenReset() / 1_000_000,
          shared.takePinnedBytes(version));
    }

    /**
     * Tells the driver about files that could not be made durable, and the log about those without a
     * footer. To be called after everything that writes and before the task ends, so that the driver
     * knows it before it commits a batch.
     */
    public void reportFiles() {
      OpenManager.warn(Native.takeWarnings(manager));
      reportLostFiles(shared);
    }

    /** Surrounds the maintenance of a store, with {@link #endMaintenance}. */
    public void beginMaintenance() {
      shared.beginMaintenance();
    }

    /**
     * Large runs share a file. Where that must be closed before commits can refer to them, it is
     * closed when maintenance is over, so that there is one for all of it.
     */
    public void endMaintenance() {
      shared.endMaintenance();
      if (Native.hasPendingRuns(manager) && shared.awaitQuiet()) {
        sealRunsWhenQuiet(shared);
      }
    }

    /** Brings what a store left in runs into memory, beside the tasks that use the store. */
    public void hydrate(long store, Object what) {
      hydrator.add(store, what);
    }

    /** Has a store be merged soon, beside the tasks. */
    public void mergeSoon(Object store, Runnable merge) {
      merger.add(store, merge);
    }

    /** To be called after what may have made state leave memory: it is read from elsewhere then. */
    public void lookAtCache() {
      cache.look();
    }

    @Override
    public void close() {
      release(shared);
    }
  }

  private final DriverLink driver;
  private final ExecutorLink link;
  private final MemoryFacts memory;
  private final ExecutorTotals totals = new ExecutorTotals();
  private final LocalCache cache = new LocalCache();
  private final Hydrator hydrator = new Hydrator();
  private final Merger merger = new Merger();
  private final ManagerPool<Manager> managers = new ManagerPool<>();

  /** Managers that others have taken the place of: the last user closes them. */
  private final Set<Manager> retired = new HashSet<>();

  /** Of managers that are closed. */
  private WriterStats writtenBefore = WriterStats.NOTHING;

  /** Lost files that the driver knows, by folder. */
  private final Map<String, Set<FileId>> reportedLost = new HashMap<>();

  private final ScheduledExecutorService sweeper =
      Executors.newSingleThreadScheduledExecutor(DaemonThreads.named("holdfast-sweeper"));

  private volatile boolean nativeLoaded;

  /** Of the query that began a store last. */
  private MemoryTarget target;

  /**
   * @param link the driver's way back to this executor
   * @param memory what this executor has
   */
  StoreManagers(DriverLink driver, ExecutorLink link, MemoryFacts memory) {
    this.driver = driver;
    this.link = link;
    this.memory = memory;
    sweeper.scheduleWithFixedDelay(this::closeIdle, IDLE_MS, IDLE_MS / 2, TimeUnit.MILLISECONDS);
  }

  public ExecutorTotals totals() {
    return totals;
  }

  /** Native memory of all stores; 0 before the first one. */
  long memoryBytes() {
    return nativeLoaded ? Native.usedMemory() : 0;
  }

  /** What the local cache did so far. */
  LocalCache.Totals cached() {
    return nativeLoaded ? cache.totals() : new LocalCache.Totals(0, 0, 0);
  }

  /** What was written so far, by maintenance as well. */
  synchronized WriterStats written() {
    WriterStats sum = writtenBefore;
    for (Manager manager : managers.all()) {
      sum = sum.plus(Native.writerStats(manager.handle));
    }
    for (Manager manager : retired) {
      sum = sum.plus(Native.writerStats(manager.handle));
    }
    return sum;
  }

  /** Has stores keep to what the settings of a query say, those of other queries too. */
  public synchronized void limitMemory(HoldfastConf conf) {
    MemoryTarget wanted = MemoryTarget.of(conf.maxMemoryBytes, conf.targetMemoryBytes, memory);
    if (!wanted.equals(target)) {
      LOG.info("State stays in native memory up to {}", wanted.text());
      target = wanted;
    }
    Native.limitMemory(conf.maxMemoryBytes, wanted.bytes());
  }

  /** The manager of {@code folder}, for a store of this run of a query. */
  public synchronized Lease acquire(SegmentFolder folder, HoldfastConf conf, UUID run) {
    Manager manager = managers.of(folder.name);
    if (manager == null) {
      manager = managers.put(open(folder, conf, term(folder, 0)));
    } else if (!run.equals(manager.run)) {
      // Between two runs another application may have written to the checkpoint ...
      long term = term(folder, manager.term);
      if (term != manager.term) {
        retire(manager);
        manager = managers.put(open(folder, conf, term));
      } else {
        // ... or it may have been deleted, to begin again.
        Native.leaveDeletedFile(manager.handle);
      }
    }
    if (!folder.isLocal()) {
      cache.want(conf.localCacheBytes, target.isChosen());
    }
    manager.run = run;
    manager.users++;
    return new Lease(manager);
  }

  /** Makes files durable because the driver is about to commit a batch that needs them. */
  ExecutorReply sync(ExecutorRequest.SyncFiles request) {
    Manager manager = acquireOpen(request.dir(), request.term());
    if (manager == null) {
      return ExecutorReply.closed();
    }
    long start = System.nanoTime();
    try {
      Native.syncFiles(manager.handle, request.numbers());
      long nanos = System.nanoTime() - start;
      totals.sealNanos.add(nanos);
      manager.unreportedSealNanos.add(nanos);
      return ExecutorReply.done();
    } catch (RuntimeException | Error e) {
      LOG.error("Physical files in {} could not be made durable", request.dir(), e);
      return ExecutorReply.failed(e);
    } finally {
      OpenManager.warn(Native.takeWarnings(manager.handle));
      release(manager);
    }
  }

  private void sealRunsWhenQuiet(Manager manager) {
    try {
      sweeper.schedule(() -> sealRuns(manager), QUIET_MS, TimeUnit.MILLISECONDS);
    } catch (RejectedExecutionException ended) {
      // The executor ends, which closes all files.
      LOG.debug("No runs are sealed any more in {}", manager.dir);
    }
  }

  private void sealRuns(Manager awaited) {
    if (!awaited.isQuiet()) {
      sealRunsWhenQuiet(awaited);
      return;
    }
    Manager manager = acquireOpen(awaited.dir, awaited.term);
    if (manager == null) {
      // It was closed, or its last user will close it, and all its files.
      return;
    }
    try {
      Native.sealPendingRuns(manager.handle);
    } catch (RuntimeException e) {
      // No commit refers to these runs. Maintenance makes them again.
      LOG.warn("Runs in {} could not be made durable", manager.dir, e);
    } finally {
      OpenManager.warn(Native.takeWarnings(manager.handle));
      release(manager);
    }
  }

  private synchronized Manager acquireOpen(String dir, long term) {
    Manager manager = managers.find(dir, term);
    if (manager != null) {
      manager.users++;
    }
    return manager;
  }

  /** Remembers what the driver found wasteful. */
  synchronized ExecutorReply accept(ExecutorRequest.WasteNotice notice) {
    Manager manager = managers.of(notice.dir());
    if (manager == null) {
      return ExecutorReply.closed();
    }
    manager.wasteful = notice.files();
    manager.pinnedBytes = notice.pinnedBytes();
    return ExecutorReply.done();
  }

  private void reportLostFiles(Manager manager) {
    long[] lost = Native.lostFiles(manager.handle);
    if (lost.length == 0) {
      return;
    }
    // Under the lock until the driver has answered: no task ends on the strength of a report that
    // another thread has not finished.
    synchronized (reportedLost) {
      Set<FileId> reported = reportedLost.computeIfAbsent(manager.dir, key -> new HashSet<>());
      List<FileId> fresh = new ArrayList<>();
      for (long number : lost) {
        FileId file = new FileId(manager.term, number);
        if (!reported.contains(file)) {
          fresh.add(file);
        }
      }
      if (!fresh.isEmpty()) {
        LOG.error("Physical files in {} could not be made durable: {}", manager.dir, fresh);
        driver.ask(
            new LostFiles(manager.dir, driver.executorId(), fresh),
            "took no report of lost files in " + manager.dir);
        reported.addAll(fresh);
      }
    }
  }

  private synchronized void release(Manager manager) {
    if (--manager.users > 0) {
      return;
    }
    if (retired.remove(manager)) {
      close(manager);
    } else {
      manager.idleSinceMs = System.currentTimeMillis();
    }
  }

  /** Lets the stores of an earlier run end with the manager that they have. */
  private void retire(Manager manager) {
    managers.remove(manager);
    if (manager.users == 0) {
      close(manager);
    } else {
      retired.add(manager);
    }
  }

  synchronized void stop() {
    sweeper.shutdownNow();
    hydrator.stop();
    merger.stop();
    managers.take(manager -> true).forEach(this::close);
    retired.forEach(this::close);
    retired.clear();
    cache.stop();
  }

  /** The term for a run that begins: the one of the manager that there is, unless that is over. */
  private long term(SegmentFolder folder, long held) {
    TermRequest request = TermRequest.of(folder, held, driver.executorId(), link);
    return (Long) driver.ask(request, "gave no term for " + folder.name);
  }

  private Manager open(SegmentFolder folder, HoldfastConf conf, long term) {
    long handle =
        Native.openFolder(
            folder.name, folder.files(), term, conf.maxFileBytes, conf.compression.code);
    nativeLoaded = true;
    return new Manager(folder.name, term, handle);
  }

  private synchronized void closeIdle() {
    long now = System.currentTimeMillis();
    managers
        .take(manager -> manager.users == 0 && now - manager.idleSinceMs >= IDLE_MS)
        .forEach(this::close);
  }

  private void close(Manager manager) {
    manager.closed = true;
    if (!manager.seal()) {
      try {
        // A batch that refers to it may be about to commit.
        OpenManager.warn(Native.takeWarnings(manager.handle));
        reportLostFiles(manager);
      } catch (RuntimeException unreachable) {
        LOG.warn("Lost files in {} were not reported to the driver", manager.dir, unreachable);
      }
    }
    writtenBefore = writtenBefore.plus(Native.writerStats(manager.handle));
    Native.closeFolder(manager.handle);
  }
}
