package io.holdfast.spark;

import java.util.Base64;
import java.util.HashMap;
import java.util.Iterator;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.api.plugin.PluginContext;
import org.apache.spark.util.SerializableConfiguration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Executor side of regional pipelines: a socket for the executor's Python workers, and one manager per
 * folder of segments, which all of them share. A manager lives as long as the driver has its pipeline
 * open: only it knows which segments of its files are needed.
 */
final class RegionalManagers {
  private static final Logger LOG = LoggerFactory.getLogger(RegionalManagers.class);

  /** Kinds of requests of the driver: kind, folder, term, argument. */
  static final String TELL = "regional-tell";

  static final String CLOSE = "regional-close";

  /** Answers: the first word, then what else there is to say. */
  static final String DONE = "done";

  static final String FAILED = "failed";
  private static final String UNKNOWN = "unknown";

  /** Between two attempts to accept a worker after the system refused one. */
  private static final long REFUSED_PAUSE_MS = 1_000;

  private record Manager(long handle, long term, RegionalMessages.Run run) {}

  private final PluginContext context;
  private final ExecutorEndpoint endpoint;
  private final Map<String, Manager> managers = new HashMap<>();
  private final CountDownLatch stopped = new CountDownLatch(1);
  private final ExecutorService threads =
      Executors.newCachedThreadPool(
          task -> {
            Thread thread = new Thread(task, "holdfast-worker");
            thread.setDaemon(true);
            return thread;
          });

  /** Handle of the socket; 0 without one. */
  private long listener;

  RegionalManagers(PluginContext context, ExecutorEndpoint endpoint) {
    this.context = context;
    this.endpoint = endpoint;
  }

  /**
   * Listens for workers. An application without regional pipelines does not need it, so a failure is
   * only told.
   */
  void start() {
    try {
      listener = Native.listen(System.getProperty("java.io.tmpdir", "/tmp"));
      LOG.info("Holdfast listens for Python workers at {}", Native.socketPath(listener));
      threads.execute(this::accept);
    } catch (RuntimeException | LinkageError e) {
      LOG.warn("Holdfast does not listen for Python workers: regional pipelines cannot run here", e);
    }
  }

  private void accept() {
    while (stopped.getCount() > 0) {
      try {
        long connection = Native.accept(listener);
        if (connection == 0) {
          return;
        }
        threads.execute(() -> Native.serve(connection, this));
      } catch (IllegalStateException closed) {
        return;
      } catch (RuntimeException e) {
        LOG.warn("A Python worker could not be accepted", e);
        pause(REFUSED_PAUSE_MS);
      }
    }
  }

  /** A worker introduced itself. The native side calls this by name. */
  RegionalWorker connect(String pipeline, String folder, long maxFileBytes, int compression) {
    Object answer =
        ask(new RegionalMessages.Hello(pipeline, folder), "did not welcome a worker of " + pipeline);
    Object[] welcome = (Object[]) RegionalWorker.accepted(answer);
    String dir = (String) welcome[0];
    RegionalMessages.Run run = new RegionalMessages.Run(pipeline, (Long) welcome[1]);
    Manager manager = acquire(dir, run, maxFileBytes, compression);
    return new RegionalWorker(this, run, manager.handle());
  }

  private synchronized Manager acquire(
      String dir, RegionalMessages.Run run, long maxFileBytes, int compression) {
    if (stopped.getCount() == 0) {
      throw new IllegalStateException("The executor is stopping");
    }
    Manager manager = managers.get(dir);
    if (manager != null && manager.run().number() > run.number()) {
      throw new IllegalStateException("The pipeline " + run.pipeline() + " was begun again");
    }
    if (manager != null && !manager.run().equals(run)) {
      // Its view of what is retained is another run's: ids of checkpoints may begin again.
      managers.remove(dir);
      close(dir, manager);
      manager = null;
    }
    if (manager == null) {
      manager = open(dir, run, maxFileBytes, compression);
      managers.put(dir, manager);
    }
    return manager;
  }

  private Manager open(String dir, RegionalMessages.Run run, long maxFileBytes, int compression) {
    RegionalMessages.TermWanted wanted =
        new RegionalMessages.TermWanted(run, context.executorID(), endpoint.link());
    Object[] given =
        (Object[]) RegionalWorker.accepted(ask(wanted, "gave no term for " + dir));
    long term = (Long) given[0];
    Configuration conf = given[1] == null ? null : ((SerializableConfiguration) given[1]).value();
    LOG.info(
        "Holdfast writes segments of {} to {} with term {}",
        run.pipeline(),
        dir,
        Long.toHexString(term));
    StateFolder folder = StateFolder.named(dir, conf);
    long handle = Native.openRegional(dir, folder.files(), term, maxFileBytes, compression);
    return new Manager(handle, term, run);
  }

  /** Whether {@link #handle} knows this request of the driver. */
  static boolean takes(String[] wire) {
    return wire[0].equals(TELL) || wire[0].equals(CLOSE);
  }

  /** A request of the driver. */
  String[] handle(String[] wire) {
    try {
      String dir = wire[1];
      Manager manager = find(dir, Long.parseLong(wire[2]), wire[0].equals(CLOSE));
      if (manager == null) {
        return new String[] {UNKNOWN};
      }
      switch (wire[0]) {
        case CLOSE:
          close(dir, manager);
          return new String[] {DONE};
        default:
          warn(Native.tellRegional(manager.handle(), Base64.getDecoder().decode(wire[3])));
          return new String[] {DONE};
      }
    } catch (RuntimeException e) {
      LOG.warn("Holdfast could not do what the driver wants: {}", wire[0], e);
      return new String[] {FAILED, e.toString()};
    }
  }

  private synchronized Manager find(String dir, long term, boolean remove) {
    Manager manager = managers.get(dir);
    if (manager == null || manager.term() != term) {
      return null;
    }
    return remove ? managers.remove(dir) : manager;
  }

  void stop() {
    stopped.countDown();
    if (listener != 0) {
      Native.stopListening(listener);
    }
    threads.shutdown();
    synchronized (this) {
      Iterator<Map.Entry<String, Manager>> entries = managers.entrySet().iterator();
      while (entries.hasNext()) {
        Map.Entry<String, Manager> entry = entries.next();
        entries.remove();
        seal(entry.getKey(), entry.getValue());
      }
    }
  }

  private void close(String dir, Manager manager) {
    seal(dir, manager);
    try {
      ask(new RegionalMessages.TermEnded(dir, manager.term()), "was not told of the end of a term");
    } catch (RuntimeException e) {
      // The term counts as alive for as long as this executor: its files stay a little longer.
      LOG.warn("The driver was not told that nothing is appended to {} any more", dir, e);
    }
  }

  private static void seal(String dir, Manager manager) {
    try {
      warn(Native.closeRegional(manager.handle()));
    } catch (RuntimeException e) {
      // What was acknowledged is durable; whoever reads the file scans it.
      LOG.warn("The last file in {} could not be sealed", dir, e);
    }
  }

  private static void warn(String[] warnings) {
    for (String warning : warnings) {
      LOG.warn("{}", warning);
    }
  }

  /** Asks the driver. */
  Object ask(Object message, String failure) {
    try {
      return context.ask(message);
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new HoldfastException("The driver " + failure, e);
    }
  }

  /** Waits before something is tried again; fails when the executor stops. */
  void pause(long millis) {
    try {
      if (stopped.await(millis, TimeUnit.MILLISECONDS)) {
        throw new IllegalStateException("The executor is stopping");
      }
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw new IllegalStateException("The executor is stopping", e);
    }
  }
}
