package io.holdfast.spark;

import java.util.Arrays;
import java.util.HashMap;
import java.util.HashSet;
import java.util.Iterator;
import java.util.Map;
import java.util.Set;
import java.util.concurrent.Executors;
import java.util.concurrent.ScheduledExecutorService;
import java.util.concurrent.TimeUnit;
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
    int users;
    long idleSinceMs;

    Manager(long handle) {
      this.handle = handle;
    }
  }

  /** A store's share of a manager, until closed. */
  final class Lease implements AutoCloseable {
    final long manager;
    private final String dir;

    Lease(long manager, String dir) {
      this.manager = manager;
      this.dir = dir;
    }

    /**
     * Tells the driver about files that could not be made durable. To be called after everything
     * that writes and before the task ends, so that the driver knows it before it commits a batch.
     */
    void reportLostFiles() {
      String lost = Native.lostFiles(manager);
      if (lost != null) {
        HoldfastExecutor.this.reportLostFiles(dir, lost);
      }
    }

    NativeMemory memory() {
      return memory;
    }

    @Override
    public void close() {
      release(dir);
    }
  }

  /** Names of lost files that the driver knows, by folder. */
  private final Map<String, Set<String>> reportedLost = new HashMap<>();
  private final Map<String, Manager> managers = new HashMap<>();
  private final NativeMemory memory = new NativeMemory();
  private PluginContext context;
  private ScheduledExecutorService sweeper;

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
    sweeper.scheduleWithFixedDelay(this::closeIdle, IDLE_MS, IDLE_MS / 2, TimeUnit.MILLISECONDS);
    HoldfastPlugin.started(this);
  }

  /** The manager for {@code dir}. */
  synchronized Lease acquire(String dir, HoldfastConf conf) {
    Manager manager = managers.get(dir);
    if (manager == null) {
      manager = new Manager(open(dir, conf));
      managers.put(dir, manager);
    }
    manager.users++;
    return new Lease(manager.handle, dir);
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
        ask(new LostFiles(dir, fresh), "was not told of lost files in " + dir);
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

  private synchronized void release(String dir) {
    Manager manager = managers.get(dir);
    if (manager != null && --manager.users == 0) {
      manager.idleSinceMs = System.currentTimeMillis();
    }
  }

  @Override
  public synchronized void shutdown() {
    HoldfastPlugin.stopped(this);
    sweeper.shutdownNow();
    managers.forEach(HoldfastExecutor::close);
    managers.clear();
  }

  private long open(String dir, HoldfastConf conf) {
    TermRequest request = new TermRequest(dir, context.executorID());
    long term = (Long) ask(request, "gave no term for " + dir);
    LOG.info("Holdfast writes to {} with term {}", dir, Long.toHexString(term));
    return Native.openManager(dir, term, conf.maxFileBytes, conf.compression);
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

  private static void close(String dir, Manager manager) {
    try {
      Native.closeManager(manager.handle);
    } catch (RuntimeException e) {
      // Nothing is lost: what tasks wrote is in the file, only its footer is missing.
      LOG.warn("The last file in {} could not be sealed", dir, e);
    }
  }
}
