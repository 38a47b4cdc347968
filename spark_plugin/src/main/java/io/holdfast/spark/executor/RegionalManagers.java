package io.holdfast.spark.executor;

import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.Native;
import io.holdfast.spark.merged.SegmentFolder;
import io.holdfast.spark.rpc.DriverLink;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.rpc.ExecutorLink;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.staging.StagedOutput;
import java.io.IOException;
import java.util.HashMap;
import java.util.Map;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkEnv;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Executor side of regional pipelines: a socket for the executor's Python workers, and one manager
 * per folder of segments, which all workers share. A manager lives while its pipeline is open on
 * the driver: only the manager knows which segments of its files are needed.
 */
final class RegionalManagers implements WorkerHost {
  private static final Logger LOG = LoggerFactory.getLogger(RegionalManagers.class);

  /** After the system refused to accept a worker. */
  private static final long REFUSED_PAUSE_MS = 1_000;

  /** While the driver has no room for messages of a worker. */
  private static final long FIRST_PAUSE_MS = 5;

  private static final long LONGEST_PAUSE_MS = 200;

  private static final class Manager extends OpenManager {
    final DriverRequest.Run run;
    final StagedOutput output; // of its workers

    Manager(String dir, long term, long handle, DriverRequest.Run run, StagedOutput output) {
      super(dir, term, handle);
      this.run = run;
      this.output = output;
    }

    @Override
    String[] sealFiles() {
      return Native.closeRegional(handle);
    }
  }

  private final DriverLink driver;
  private final ExecutorLink link; // the driver's way back to this executor
  private final StoreManagers stores; // tables share their memory with these
  private final Map<String, Manager> managers = new HashMap<>(); // by folder

  private final CountDownLatch stopped = new CountDownLatch(1);
  private final ExecutorService threads =
      Executors.newCachedThreadPool(DaemonThreads.named("holdfast-worker"));
  private long listener; // handle of the socket; 0 without one

  RegionalManagers(DriverLink driver, ExecutorLink link, StoreManagers stores) {
    this.driver = driver;
    this.link = link;
    this.stores = stores;
  }

  /** A failure is only logged: other applications do not need the socket. */
  void start() {
    try {
      String[] localDirs = SparkEnv.get().blockManager().diskBlockManager().localDirsString();
      listener = Native.listen(String.join(",", localDirs));
      LOG.info("Holdfast listens for Python workers at {}", Native.socketAddress(listener));
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

  @Override
  public Worker connect(String pipeline, String folder, long maxFileBytes, int compression) {
    DriverRequest hello = new DriverRequest.Hello(pipeline, folder);
    DriverReply.Welcome welcome =
        (DriverReply.Welcome) driver.ask(hello, "did not welcome a worker of " + pipeline);
    DriverRequest.Run run = new DriverRequest.Run(pipeline, welcome.run());
    Manager manager = acquire(welcome.dir(), run, maxFileBytes, compression);
    return new Worker() {
      @Override
      public long manager() {
        return manager.handle;
      }

      @Override
      public void send(byte[] data) {
        RegionalManagers.this.send(run, data);
      }

      @Override
      public void stage(String local, String staged, String target) throws IOException {
        manager.output.stage(local, staged, target);
      }
    };
  }

  /**
   * Sends bytes of a worker to the driver. While the driver has no room, the worker waits here: the
   * driver's one thread for messages of executors must not wait.
   */
  private void send(DriverRequest.Run run, byte[] data) {
    DriverRequest.Sent message = new DriverRequest.Sent(run, data);
    String failure = "did not take a message of " + run.pipeline();
    long pauseMs = FIRST_PAUSE_MS;
    while (driver.ask(message, failure) instanceof DriverReply.Full) {
      pause(pauseMs);
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    }
  }

  private synchronized Manager acquire(
      String dir, DriverRequest.Run run, long maxFileBytes, int compression) {
    if (stopped.getCount() == 0) {
      throw new IllegalStateException("The executor is stopping");
    }
    Manager manager = managers.get(dir);
    if (manager != null && manager.run.number() > run.number()) {
      throw new IllegalStateException("The pipeline " + run.pipeline() + " was begun again");
    }
    if (manager != null && !manager.run.equals(run)) {
      // It knows the retained checkpoints of another run, and ids may begin again.
      managers.remove(dir);
      close(manager);
      manager = null;
    }
    if (manager == null) {
      manager = open(dir, run, maxFileBytes, compression);
      managers.put(dir, manager);
    }
    return manager;
  }

  private Manager open(String dir, DriverRequest.Run run, long maxFileBytes, int compression) {
    DriverRequest wanted = new DriverRequest.PipelineTerm(run, driver.executorId(), link);
    DriverReply.PipelineTerm given =
        (DriverReply.PipelineTerm) driver.ask(wanted, "gave no term for " + dir);
    Configuration conf = given.conf().value();
    SegmentFolder folder = SegmentFolder.named(dir, conf);
    stores.limitMemoryOfTables(SparkEnv.get().conf());
    long handle =
        Native.openRegional(
            dir,
            folder.files(),
            given.term(),
            given.liveTerms(),
            given.wasteful(),
            maxFileBytes,
            compression);
    return new Manager(dir, given.term(), handle, run, new StagedOutput(conf));
  }

  ExecutorReply tell(ExecutorRequest.TellManager request) {
    Manager manager = find(request.dir(), request.term(), false);
    if (manager == null) {
      return ExecutorReply.closed();
    }
    try {
      OpenManager.warn(Native.tellRegional(manager.handle, request.message()));
      return ExecutorReply.done();
    } catch (RuntimeException e) {
      LOG.warn("The manager of {} could not take a message of the driver", request.dir(), e);
      return ExecutorReply.failed(e);
    }
  }

  ExecutorReply close(ExecutorRequest.CloseManager request) {
    Manager manager = find(request.dir(), request.term(), true);
    if (manager == null) {
      return ExecutorReply.closed();
    }
    close(manager);
    return ExecutorReply.done();
  }

  /** The manager that the driver means; null if it is closed, or another one has its place. */
  private synchronized Manager find(String dir, long term, boolean remove) {
    Manager manager = managers.get(dir);
    if (manager == null || manager.term != term) {
      return null;
    }
    if (remove) {
      managers.remove(dir);
    }
    return manager;
  }

  void stop() {
    stopped.countDown();
    if (listener != 0) {
      Native.stopListening(listener);
    }
    threads.shutdown();
    synchronized (this) {
      managers.values().forEach(OpenManager::seal);
      managers.clear();
    }
  }

  private void close(Manager manager) {
    manager.seal();
    DriverRequest ended = new DriverRequest.TermEnded(manager.dir, manager.term);
    try {
      driver.ask(ended, "took no notice of the end of a term");
    } catch (RuntimeException e) {
      // The driver takes the term for alive as long as this executor, so its files remain longer.
      LOG.warn("The end of a manager in {} was not reported to the driver", manager.dir, e);
    }
  }

  /** Fails when the executor stops. */
  private void pause(long millis) {
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
