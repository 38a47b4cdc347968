package io.holdfast.spark;

import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
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

  private final Map<String, Manager> managers = new HashMap<>();
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

  /** Handle of the manager for {@code dir}; every call is paired with {@link #release}. */
  synchronized long acquire(String dir, HoldfastConf conf) {
    Manager manager = managers.get(dir);
    if (manager == null) {
      manager = new Manager(open(dir, conf));
      managers.put(dir, manager);
    }
    manager.users++;
    return manager.handle;
  }

  synchronized void release(String dir) {
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
    try {
      long term = (Long) context.ask(new TermRequest(dir, context.executorID()));
      LOG.info("Holdfast writes to {} with term {}", dir, Long.toHexString(term));
      return Native.openManager(dir, term, conf.maxFileBytes, conf.compression);
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new HoldfastException("The driver gave no term for " + dir, e);
    }
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
