package io.holdfast.spark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.IdentityHashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import java.util.UUID;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.atomic.LongAdder;
import org.apache.spark.api.plugin.ExecutorPlugin;
import org.apache.spark.api.plugin.PluginContext;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Executor side of the plugin: one manager per checkpoint root, shared by all state stores of the
 * executor. That is what lets hundreds of partitions write into one file.
 */
final class HoldfastExecutor implements ExecutorPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(HoldfastExecutor.class);
  /** A manager that no store uses for this long is sealed and closed. */
  private static final long IDLE_MS = 60_000;

  private static final class Manager {
    final long handle;
    final long term;
    int users;
    long idleSinceMs;

    /** The run of a query that acquired it last. */
    UUID run;

    /** The executor ends: maintenance that still runs has nothing to write to any more. */
    volatile boolean closed;

    /** Files that should go, as far as the driver said. */
    volatile String[] wasteful = {};

    /** Bytes that nobody needs any more, as far as the driver said. */
    volatile long pinnedBytes;

    final LongAdder unreportedSealNanos = new LongAdder();
    private long pinnedReportedAt = -1;
    private long[] reported = new long[Native.WRITER_STATS];

    Manager(long handle, long term) {
      this.handle = handle;
      this.term = term;
    }

    /** What the writer did since this was last asked: see {@link Native#writerStats}. */
    synchronized long[] takeStats() {
      long[] now = Native.writerStats(handle);
      long[] fresh = new long[now.length];
      for (int i = 0; i < now.length; i++) {
        fresh[i] = now[i] - reported[i];
      }
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
  final class Lease implements AutoCloseable {
    final long manager;
    private final Manager shared;
    private final String dir;

    Lease(Manager shared, String dir) {
      this.shared = shared;
      manager = shared.handle;
      this.dir = dir;
    }

    boolean isOver() {
      return shared.closed;
    }

    ExecutorTotals totals() {
      return totals;
    }

    /** Names of files that should go. */
    String[] wasteful() {
      return shared.wasteful;
    }

    /**
     * What the manager did since any of its stores last asked, so that the sum over all tasks is
     * right: files created, files sealed, segments, bytes as stored, milliseconds of sealing, bytes
     * that nobody needs any more.
     */
    long[] takeTotals(long version) {
      long[] fresh = shared.takeStats();
      return new long[] {
        fresh[0],
        fresh[1],
        fresh[2],
        fresh[3],
        shared.unreportedSealNanos.sumThenReset() / 1_000_000,
        shared.takePinnedBytes(version)
      };
    }

    /**
     * Tells the driver about files that could not be made durable, and the log about those without a
     * footer. To be called after everything that writes and before the task ends, so that the driver
     * knows it before it commits a batch.
     */
    void reportFiles() {
      logWarnings(manager);
      String lost = Native.lostFiles(manager);
      if (lost != null) {
        HoldfastExecutor.this.reportLostFiles(dir, lost);
      }
    }

    @Override
    public void close() {
      release(dir, shared);
    }
  }

  /** What state readers look up. */
  final CommitEntries commitEntries = new CommitEntries();

  /** Names of lost files that the driver knows, by folder. */
  private final Map<String, Set<String>> reportedLost = new HashMap<>();
  private final Map<String, Manager> managers = new HashMap<>();

  /** Managers that others have taken the place of, with their folders: the last user closes them. */
  private final Map<Manager, String> retired = new IdentityHashMap<>();

  /** Of managers that are closed: see {@link Native#writerStats}. */
  private final long[] writtenBefore = new long[Native.WRITER_STATS];

  private PluginContext context;
  private ScheduledExecutorService sweeper;
  private ExecutorEndpoint endpoint;
  private RegionalManagers regional;
  private final ExecutorTotals totals = new ExecutorTotals();
  private volatile boolean nativeLoaded;

  @Override
  public void init(PluginContext pluginContext, Map<String, String> extraConf) {
    context = pluginContext;
    sweeper =
        Executors.newSingleThreadScheduledExecutor(
            task -> {
              Thread thread = new Thread(task, "holdfast-sweeper");
              thread.setDaemon(true);
              return thread;
            });
    endpoint = new ExecutorEndpoint(context.executorID(), this::handle);
    regional = new RegionalManagers(context, endpoint);
    regional.start();
    sweeper.scheduleWithFixedDelay(this::closeIdle, IDLE_MS, IDLE_MS / 2, TimeUnit.MILLISECONDS);
    totals.register(
        context.metricRegistry(),
        () -> nativeLoaded ? Native.usedMemory() : 0,
        this::written);
    HoldfastPlugin.started(this);
  }

  /** A request of the driver. */
  private String[] handle(String[] wire) {
    if (RegionalManagers.takes(wire)) {
      return regional.handle(wire);
    }
    if (wire[0].equals(WasteNotice.TAG)) {
      accept(WasteNotice.fromWire(wire));
      return new String[0];
    }
    return sync(SyncRequest.fromWire(wire)).toWire();
  }

  private synchronized void accept(WasteNotice notice) {
    Manager manager = managers.get(notice.dir);
    if (manager != null) {
      manager.wasteful = notice.names;
      manager.pinnedBytes = notice.pinnedBytes;
    }
  }

  /** The manager of {@code folder}, for a store of this run of a query. */
  synchronized Lease acquire(StateFolder folder, HoldfastConf conf, UUID run) {
    Manager manager = managers.get(folder.name);
    if (manager == null) {
      manager = open(folder, conf, term(folder, 0));
      managers.put(folder.name, manager);
    } else if (!run.equals(manager.run)) {
      // Between two runs another application may have written to the checkpoint ...
      long term = term(folder, manager.term);
      if (term != manager.term) {
        retire(folder.name, manager);
        manager = open(folder, conf, term);
        managers.put(folder.name, manager);
      } else {
        // ... or it may have been deleted, to begin again.
        Native.leaveDeletedFile(manager.handle);
      }
    }
    manager.run = run;
    manager.users++;
    return new Lease(manager, folder.name);
  }

  /** Makes files durable because the driver is about to commit a batch that needs them. */
  private SyncReply sync(SyncRequest request) {
    Manager manager = acquireOpen(request);
    if (manager == null) {
      return SyncReply.closed();
    }
    long start = System.nanoTime();
    try {
      Native.syncFiles(manager.handle, request.names);
      long nanos = System.nanoTime() - start;
      totals.sealNanos.add(nanos);
      manager.unreportedSealNanos.add(nanos);
      return SyncReply.durable();
    } catch (RuntimeException | Error e) {
      LOG.error("State files in {} could not be made durable", request.dir, e);
      return SyncReply.failed(e);
    } finally {
      logWarnings(manager.handle);
      release(request.dir, manager);
    }
  }

  private synchronized Manager acquireOpen(SyncRequest request) {
    Manager manager = managers.get(request.dir);
    if (manager == null || manager.term != request.term) {
      return null;
    }
    manager.users++;
    return manager;
  }

  /** What was written so far, by maintenance as well: see {@link Native#writerStats}. */
  private synchronized long[] written() {
    long[] sum = writtenBefore.clone();
    for (Manager manager : managers.values()) {
      add(sum, Native.writerStats(manager.handle));
    }
    for (Manager manager : retired.keySet()) {
      add(sum, Native.writerStats(manager.handle));
    }
    return sum;
  }

  private static void add(long[] sum, long[] more) {
    for (int i = 0; i < sum.length; i++) {
      sum[i] += more[i];
    }
  }

  private static void logWarnings(long manager) {
    for (String warning : Native.takeWarnings(manager)) {
      LOG.warn("{}", warning);
    }
  }

  private void reportLostFiles(String dir, String lost) {
    // Under the lock until the driver has answered: no task ends on the strength of a report that
    // another thread has not finished.
    synchronized (reportedLost) {
      Set<String> reported = reportedLost.computeIfAbsent(dir, key -> new HashSet<>());
      String[] fresh =
          lost.lines().filter(name -> !reported.contains(name)).toArray(String[]::new);
      if (fresh.length > 0) {
        LOG.error("State files in {} could not be made durable: {}", dir, String.join(", ", fresh));
        LostFiles message = new LostFiles(dir, context.executorID(), fresh);
        ask(message, "was not told of lost files in " + dir);
        reported.addAll(Arrays.asList(fresh));
      }
    }
  }

  private Object ask(Object message, String failure) {
    try {
      return context.ask(message);
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new HoldfastException("The driver " + failure, e);
    }
  }

  private synchronized void release(String dir, Manager manager) {
    if (--manager.users > 0) {
      return;
    }
    if (retired.remove(manager) != null) {
      close(dir, manager);
    } else {
      manager.idleSinceMs = System.currentTimeMillis();
    }
  }

  /** Lets the stores of an earlier run end with the manager that they have. */
  private void retire(String dir, Manager manager) {
    managers.remove(dir);
    if (manager.users == 0) {
      close(dir, manager);
    } else {
      retired.put(manager, dir);
    }
  }

  @Override
  public synchronized void shutdown() {
    HoldfastPlugin.stopped(this);
    regional.stop();
    endpoint.close();
    sweeper.shutdownNow();
    managers.forEach(this::close);
    managers.clear();
    retired.forEach((manager, dir) -> close(dir, manager));
    retired.clear();
  }

  /** The term for a run that begins: the one of the manager that there is, unless that is over. */
  private long term(StateFolder folder, long held) {
    TermRequest request = new TermRequest(folder, held, context.executorID(), endpoint.link());
    return (Long) ask(request, "gave no term for " + folder.name);
  }

  private Manager open(StateFolder folder, HoldfastConf conf, long term) {
    LOG.info("Holdfast writes to {} with term {}", folder.name, Long.toHexString(term));
    long handle =
        Native.openManager(
            folder.name, folder.files(), term, conf.maxFileBytes, conf.compression);
    nativeLoaded = true;
    return new Manager(handle, term);
  }

  private synchronized void closeIdle() {
    long now = System.currentTimeMillis();
    Iterator<Map.Entry<String, Manager>> entries = managers.entrySet().iterator();
    while (entries.hasNext()) {
      Map.Entry<String, Manager> entry = entries.next();
      Manager manager = entry.getValue();
      if (manager.users == 0 && now - manager.idleSinceMs >= IDLE_MS) {
        entries.remove();
        close(entry.getKey(), manager);
      }
    }
  }

  private void close(String dir, Manager manager) {
    manager.closed = true;
    try {
      Native.seal(manager.handle);
      logWarnings(manager.handle);
    } catch (RuntimeException e) {
      LOG.warn("The last file in {} could not be sealed", dir, e);
      try {
        // A batch that refers to it may be about to commit.
        new Lease(manager, dir).reportFiles();
      } catch (RuntimeException unreachable) {
        LOG.warn("The driver was not told of lost files in {}", dir, unreachable);
      }
    }
    add(writtenBefore, Native.writerStats(manager.handle));
    Native.closeManager(manager.handle);
  }
}
