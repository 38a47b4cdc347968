package io.holdfast.spark.executor;

import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.Native;
import io.holdfast.spark.copies.CommitCopies;
import io.holdfast.spark.merged.FileId;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.merged.WriterStats;
import io.holdfast.spark.rpc.DriverLink;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.rpc.ExecutorLink;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.rpc.StoreSize;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.Executors;
import java.util.concurrent.RejectedExecutionException;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.ThreadLocalRandom;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.apache.spark.SparkConf;
import org.apache.spark.SparkContext$;
import org.apache.spark.storage.BlockId;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Executor side of state stores: one manager per checkpoint root, shared by all stores of the
 * executor, so that hundreds of partitions can write into one file.
 */
public final class StoreManagers {
  private static final Logger LOG = LoggerFactory.getLogger(StoreManagers.class);

  /** Idle managers are sealed and closed after this time. */
  private static final long IDLE_MS = 60_000;

  /** Maintenance is over after so long without a store: Spark pauses only after the last store. */
  private static final long QUIET_MS = 2_000;

  public interface OpenStore {
    StoreSize size();
  }

  /** The manager of a checkpoint root. Each store that acquired it closes it once. */
  public final class Manager extends OpenManager implements AutoCloseable {
    private int users;
    private long idleSinceMs;
    private UUID run; // that acquired it last

    private volatile boolean closed;
    public volatile FileId[] wasteful = {}; // should go, by the driver's last notice
    private volatile long pinnedBytes; // that no retained batch needs, by the same notice

    private final LongAdder unreportedSealNanos = new LongAdder();
    private int maintained; // stores in maintenance now

    private long maintainedAtNanos;
    private boolean awaitsQuiet;
    private long pinnedReportedAt = -1;
    private WriterStats reported = WriterStats.NOTHING;
    public final KnownKeys keys = new KnownKeys();
    private final Set<OpenStore> stores = ConcurrentHashMap.newKeySet();
    private final CommitCopies copies; // null without copies

    private Manager(String dir, long term, long handle, boolean copied) {
      super(dir, term, handle);
      copies = copied ? new CommitCopies(dir, term, handle) : null;
    }

    @Override
    String[] sealFiles() {
      Native.seal(handle);
      return Native.takeWarnings(handle);
    }

    /** True after the executor ended: maintenance that still runs has no file to write to. */
    public boolean isOver() {
      return closed;
    }

    public ExecutorTotals totals() {
      return totals;
    }

    public synchronized ManagerTotals takeTotals(long version) {
      WriterStats now = Native.writerStats(handle);
      WriterStats fresh = now.minus(reported);
      reported = now;
      // Once per version, because Spark adds up the metrics of all tasks of a batch.
      long pinned = version == pinnedReportedAt ? 0 : pinnedBytes;
      pinnedReportedAt = version;
      long sealMs = unreportedSealNanos.sumThenReset() / 1_000_000;
      return new ManagerTotals(fresh, sealMs, pinned);
    }

    /**
     * Copies what was written, and tells the driver about files that could not be made durable, and
     * the log about files without a footer. A store calls this after every write and before the task
     * ends, so that the driver learns it before it commits a batch.
     */
    public void written() {
      if (copies != null) {
        copies.copy();
      }
      warn(Native.takeWarnings(handle));
      reportLostFiles(this);
    }

    /** Files up to this number are finished or lost, so nobody needs copies of them. */
    private void endCopies(long number, Executor worker) {
      if (copies != null) {
        List<BlockId> ended = copies.takeFinished(number);
        if (!ended.isEmpty()) {
          worker.execute(() -> CommitCopies.remove(master -> ended));
        }
      }
    }

    /** {@link #endMaintenance} ends it. */
    public synchronized void beginMaintenance() {
      maintained++;
    }

    /**
     * Large runs share a file. If commits can refer to them only after it is closed, it is closed
     * when maintenance is over, so that one file has the runs of all stores.
     */
    public void endMaintenance() {
      synchronized (this) {
        maintained--;
        maintainedAtNanos = System.nanoTime();
      }
      if (Native.hasPendingRuns(handle) && awaitQuiet()) {
        sealRunsWhenQuiet(this);
      }
    }

    /** True for the one caller that is to wait until maintenance is over. */
    private synchronized boolean awaitQuiet() {
      boolean first = !awaitsQuiet;
      awaitsQuiet = true;
      return first;
    }

    /** Returns true if maintenance is over; {@link #awaitQuiet} begins again then. */
    private synchronized boolean isQuiet() {
      long restedMs = (System.nanoTime() - maintainedAtNanos) / 1_000_000;
      boolean quiet = maintained == 0 && restedMs >= QUIET_MS;
      awaitsQuiet = !quiet;
      return quiet;
    }

    /** The store is open until {@link #closed}. */
    public void opened(OpenStore store) {
      stores.add(store);
    }

    public void closed(OpenStore store) {
      stores.remove(store);
    }

    public void hydrate(long store, Object what) {
      hydrator.hydrate(store, what);
    }

    public void mergeSoon(Object store, Runnable merge) {
      merger.merge(store, merge);
    }

    /** Called after steps that may evict state, which is then read from files. */
    public void lookAtCache() {
      cache.look();
    }

    @Override
    public void close() {
      release(this);
    }
  }

  private final DriverLink driver;
  private final ExecutorLink link; // the driver's way back to this executor

  private final MemoryFacts memory;
  public final ExecutorTotals totals = new ExecutorTotals();
  private final LocalCache cache = new LocalCache();

  // Two threads: a hydration does not wait for a merge.
  private final StoreWork hydrator = new StoreWork("holdfast-hydrator");
  private final StoreWork merger = new StoreWork("holdfast-merger");
  private final Map<String, Manager> managers = new HashMap<>(); // by folder
  private final Set<Manager> retired = new HashSet<>(); // replaced; the last user closes them
  private WriterStats writtenBefore = WriterStats.NOTHING; // of closed managers

  /** By folder, lost files that the driver knows. */
  private final Map<String, Set<FileId>> reportedLost = new HashMap<>();

  private final ScheduledExecutorService sweeper =
      Executors.newSingleThreadScheduledExecutor(DaemonThreads.named("holdfast-sweeper"));

  private volatile boolean nativeLoaded;
  private MemoryTarget target; // of the query that began a store last

  StoreManagers(DriverLink driver, ExecutorLink link, MemoryFacts memory) {
    this.driver = driver;
    this.link = link;
    this.memory = memory;
    sweeper.scheduleWithFixedDelay(this::closeIdle, IDLE_MS, IDLE_MS / 2, TimeUnit.MILLISECONDS);
  }

  /** Native memory of all stores and tables; 0 before the first one. */
  long memoryBytes() {
    return nativeLoaded ? Native.usedMemory() : 0;
  }

  LocalCache.Totals cached() {
    return nativeLoaded ? cache.totals() : new LocalCache.Totals(0, 0, 0);
  }

  /** Counters of all writes so far, with maintenance. */
  synchronized WriterStats written() {
    WriterStats sum = writtenBefore;
    for (Manager manager : managers.values()) {
      sum = sum.plus(Native.writerStats(manager.handle));
    }
    for (Manager manager : retired) {
      sum = sum.plus(Native.writerStats(manager.handle));
    }
    return sum;
  }

  /** Limits the memory of all stores, also of other queries, by the settings of one query. */
  public synchronized void limitMemory(HoldfastConf conf) {
    MemoryTarget wanted = MemoryTarget.of(conf.maxMemoryBytes, conf.targetMemoryBytes, memory);
    if (!wanted.equals(target)) {
      LOG.info("State stays in native memory up to {}", wanted.text());
      target = wanted;
    }
    Native.limitMemory(conf.maxMemoryBytes, wanted.bytes());
    nativeLoaded = true;
  }

  /** Limits the memory of tables by the settings of the application, unless a query has others. */
  synchronized void limitMemoryOfTables(SparkConf conf) {
    if (target == null) {
      limitMemory(HoldfastConf.of(conf));
    }
  }

  public synchronized Manager acquire(SegmentFolder folder, HoldfastConf conf, UUID run) {
    Manager manager = managers.get(folder.name);
    if (manager == null) {
      manager = open(folder, conf, term(folder, 0));
    } else if (!run.equals(manager.run)) {
      // Between two runs another application may have written to the checkpoint ...
      long term = term(folder, manager.term);
      if (term != manager.term) {
        retire(manager);
        manager = open(folder, conf, term);
      } else {
        // ... or a user may have deleted it, to begin again.
        Native.leaveDeletedFile(manager.handle);
      }
    }
    if (!folder.isLocal()) {
      cache.want(conf.localCacheBytes, target.isChosen());
    }
    manager.run = run;
    manager.users++;
    return manager;
  }

  /** Makes files durable: the driver is about to commit a batch that needs them. */
  ExecutorReply sync(ExecutorRequest.SyncFiles request) {
    Manager manager = acquireOpen(request.dir(), request.term());
    if (manager == null) {
      return ExecutorReply.closed();
    }
    waitForPartOf(request.spreadMs());
    long start = System.nanoTime();
    try {
      Native.syncFiles(manager.handle, request.numbers());
      long nanos = System.nanoTime() - start;
      totals.sealNanos.add(nanos);
      manager.unreportedSealNanos.add(nanos);
      return ExecutorReply.done(Native.takeFinished(manager.handle));
    } catch (RuntimeException | Error e) {
      LOG.error("Physical files in {} could not be made durable", request.dir(), e);
      return ExecutorReply.failed(e);
    } finally {
      OpenManager.warn(Native.takeWarnings(manager.handle));
      manager.endCopies(Arrays.stream(request.numbers()).max().orElse(0), sweeper);
      release(manager);
    }
  }

  private static void waitForPartOf(int spreadMs) {
    if (spreadMs > 0) {
      try {
        Thread.sleep(ThreadLocalRandom.current().nextInt(spreadMs));
      } catch (InterruptedException e) {
        Thread.currentThread().interrupt();
      }
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
      // No commit refers to these runs, and maintenance makes them again.
      LOG.warn("Runs in {} could not be made durable", manager.dir, e);
    } finally {
      OpenManager.warn(Native.takeWarnings(manager.handle));
      release(manager);
    }
  }

  /** The manager that the driver means; null if it is closed, or another one has its place. */
  private synchronized Manager acquireOpen(String dir, long term) {
    Manager manager = managers.get(dir);
    if (manager == null || manager.term != term) {
      return null;
    }
    manager.users++;
    return manager;
  }

  synchronized ExecutorReply accept(ExecutorRequest.WasteNotice notice) {
    Manager manager = managers.get(notice.dir());
    if (manager == null) {
      return ExecutorReply.closed();
    }
    manager.wasteful = notice.files();
    manager.pinnedBytes = notice.pinnedBytes();
    return ExecutorReply.done();
  }

  ExecutorReply list(ExecutorRequest.ListStores request) {
    Manager manager;
    synchronized (this) {
      manager = managers.get(request.dir());
    }
    return manager == null
        ? ExecutorReply.closed()
        : ExecutorReply.stores(manager.stores.stream().map(OpenStore::size).toList());
  }

  private void reportLostFiles(Manager manager) {
    long[] lost = Native.lostFiles(manager.handle);
    if (lost.length == 0) {
      return;
    }
    // The lock is held until the driver has answered: no task may end before a report of its lost
    // files by another thread is finished.
    synchronized (reportedLost) {
      Set<FileId> reported = reportedLost.computeIfAbsent(manager.dir, key -> new HashSet<>());
      List<FileId> fresh =
          Arrays.stream(lost)
              .mapToObj(number -> new FileId(manager.term, number))
              .filter(file -> !reported.contains(file))
              .toList();
      if (!fresh.isEmpty()) {
        LOG.error("Physical files in {} could not be made durable: {}", manager.dir, fresh);
        driver.ask(
            new DriverRequest.LostFiles(manager.dir, driver.executorId(), fresh),
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

  /** Lets the stores of an earlier run keep their manager until they end. */
  private void retire(Manager manager) {
    managers.remove(manager.dir);
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
    retired.addAll(managers.values());
    managers.clear();
    retired.forEach(this::close);
    retired.clear();
    cache.stop();
  }

  /** The term of the open manager for a run that begins, unless the term is over. */
  private long term(SegmentFolder folder, long held) {
    DriverRequest wanted = DriverRequest.StoreTerm.of(folder, held, driver.executorId(), link);
    return ((DriverReply.Term) driver.ask(wanted, "gave no term for " + folder.name)).term();
  }

  private Manager open(SegmentFolder folder, HoldfastConf conf, long term) {
    boolean copies = conf.commitCopies && folder.hidesOpenFiles();
    if (copies && driver.executorId().equals(SparkContext$.MODULE$.DRIVER_IDENTIFIER())) {
      CommitCopies.warnAlone();
      copies = false;
    }
    long handle =
        Native.openFolder(
            folder.name, folder.files(), term, conf.maxFileBytes, conf.compression.code, copies);
    Manager manager = new Manager(folder.name, term, handle, copies);
    managers.put(folder.name, manager);
    return manager;
  }

  private synchronized void closeIdle() {
    long now = System.currentTimeMillis();
    List<Manager> idle =
        managers.values().stream()
            .filter(manager -> manager.users == 0 && now - manager.idleSinceMs >= IDLE_MS)
            .toList();
    managers.values().removeAll(idle);
    idle.forEach(this::close);
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
    manager.endCopies(Long.MAX_VALUE, Runnable::run);
    writtenBefore = writtenBefore.plus(Native.writerStats(manager.handle));
    Native.closeFolder(manager.handle);
  }
}
