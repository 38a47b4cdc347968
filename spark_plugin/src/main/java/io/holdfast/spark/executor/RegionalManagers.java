package io.holdfast.spark.executor;

import io.holdfast.spark.DaemonThreads;
import io.holdfast.spark.Native;
import io.holdfast.spark.files.SegmentFolder;
import io.holdfast.spark.files.StagedOutput;
import io.holdfast.spark.rpc.DriverLink;
import io.holdfast.spark.rpc.ExecutorLink;
import io.holdfast.spark.rpc.ExecutorReply;
import io.holdfast.spark.rpc.ExecutorRequest;
import io.holdfast.spark.rpc.MessageBytes;
import io.holdfast.spark.rpc.RegionalMessages;
import java.util.concurrent.CountDownLatch;
import java.util.concurrent.ExecutorService;
import java.util.concurrent.Executors;
import java.util.concurrent.TimeUnit;
import org.apache.hadoop.conf.Configuration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Executor side of regional pipelines: a socket for the executor's Python workers, and one manager per
 * folder of segments, which all of them share. A manager lives as long as the driver has its pipeline
 * open: only it knows which segments of its files are needed.
 */
final class RegionalManagers implements WorkerHost {
  private static final Logger LOG = LoggerFactory.getLogger(RegionalManagers.class);

  /** Between two attempts to accept a worker after the system refused one. */
  private static final long REFUSED_PAUSE_MS = 1_000;

  private static final class Manager extends OpenManager {
    final RegionalMessages.Run run;

    /** Of its workers. */
    final StagedOutput output;

    Manager(
        String dir, long term, long handle, RegionalMessages.Run run, StagedOutput output) {
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
  private final ExecutorLink link;
  private final ManagerPool<Manager> managers = new ManagerPool<>();
  private final CountDownLatch stopped = new CountDownLatch(1);
  private final ExecutorService threads =
      Executors.newCachedThreadPool(DaemonThreads.named("holdfast-worker"));

  /** Handle of the socket; 0 without one. */
  private long listener;

  /**
   * @param link the driver's way back to this executor
   */
  RegionalManagers(DriverLink driver, ExecutorLink link) {
    this.driver = driver;
    this.link = link;
  }

  /**
   * Listens for workers. An application without regional pipelines does not need it, so a failure is
   * only logged.
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

  @Override
  public Worker connect(String pipeline, String folder, long maxFileBytes, int compression) {
    RegionalMessages.Hello hello = new RegionalMessages.Hello(pipeline, folder);
    RegionalMessages.Welcome welcome =
        ask(hello, "did not welcome a worker of " + pipeline, RegionalMessages.Welcome.class);
    RegionalMessages.Run run = new RegionalMessages.Run(pipeline, welcome.run());
    Manager manager = acquire(welcome.dir(), run, maxFileBytes, compression);
    return new RegionalWorker(driver, this::pause, run, manager.handle, manager.output);
  }

  private synchronized Manager acquire(
      String dir, RegionalMessages.Run run, long maxFileBytes, int compression) {
    if (stopped.getCount() == 0) {
      throw new IllegalStateException("The executor is stopping");
    }
    Manager manager = managers.of(dir);
    if (manager != null && manager.run.number() > run.number()) {
      throw new IllegalStateException("The pipeline " + run.pipeline() + " was begun again");
    }
    if (manager != null && !manager.run.equals(run)) {
      // Its view of what is retained is another run's: ids of checkpoints may begin again.
      managers.remove(manager);
      close(manager);
      manager = null;
    }
    return manager == null
        ? managers.put(open(dir, run, maxFileBytes, compression))
        : manager;
  }

  private Manager open(String dir, RegionalMessages.Run run, long maxFileBytes, int compression) {
    RegionalMessages.TermWanted wanted =
        new RegionalMessages.TermWanted(run, driver.executorId(), link);
    RegionalMessages.TermGiven given =
        ask(wanted, "gave no term for " + dir, RegionalMessages.TermGiven.class);
    Configuration conf = given.conf().value();
    SegmentFolder folder = SegmentFolder.named(dir, conf);
    long handle =
        Native.openRegional(dir, folder.files(), given.term(), maxFileBytes, compression);
    return new Manager(dir, given.term(), handle, run, new StagedOutput(conf));
  }

  /** Hands a message about a checkpoint to the manager that it is for. */
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

  /** Closes the manager of a pipeline that the driver closed. */
  ExecutorReply close(ExecutorRequest.CloseManager request) {
    Manager manager = find(request.dir(), request.term(), true);
    if (manager == null) {
      return ExecutorReply.closed();
    }
    close(manager);
    return ExecutorReply.done();
  }

  private synchronized Manager find(String dir, long term, boolean remove) {
    Manager manager = managers.find(dir, term);
    if (manager != null && remove) {
      managers.remove(manager);
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
      managers.take(manager -> true).forEach(OpenManager::seal);
    }
  }

  private void close(Manager manager) {
    manager.seal();
    RegionalMessages.TermEnded ended = new RegionalMessages.TermEnded(manager.dir, manager.term);
    try {
      driver.ask(ended, "took no notice of the end of a term");
    } catch (RuntimeException e) {
      // The term counts as alive for as long as this executor: its files stay a little longer.
      LOG.warn("The end of a manager in {} was not reported to the driver", manager.dir, e);
    }
  }

  /** Asks the driver; fails with its reason if it refuses. */
  private <T> T ask(Object message, String failure, Class<T> kind) {
    byte[] answer = (byte[]) RegionalWorker.accepted(driver.ask(message, failure));
    return MessageBytes.read(answer, kind);
  }

  /** Waits before something is tried again; fails when the executor stops. */
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
