package io.holdfast.spark.executor;

import io.holdfast.spark.files.StagedOutput;
import io.holdfast.spark.rpc.DriverLink;
import io.holdfast.spark.rpc.RegionalMessages;
import java.io.IOException;
import java.util.function.LongConsumer;

/** A Python worker of a regional pipeline that is connected to this executor. */
final class RegionalWorker implements WorkerHost.Worker {
  private static final long FIRST_PAUSE_MS = 5;
  private static final long LONGEST_PAUSE_MS = 200;

  private final DriverLink driver;
  private final LongConsumer pause;
  private final RegionalMessages.Run run;
  private final long manager;
  private final StagedOutput output;

  /**
   * @param pause waits for a number of milliseconds; fails when the executor stops
   * @param manager handle of the manager of its folder
   * @param output with the driver's settings of Hadoop
   */
  RegionalWorker(
      DriverLink driver,
      LongConsumer pause,
      RegionalMessages.Run run,
      long manager,
      StagedOutput output) {
    this.driver = driver;
    this.pause = pause;
    this.run = run;
    this.manager = manager;
    this.output = output;
  }

  @Override
  public long manager() {
    return manager;
  }

  /**
   * Hands bytes on to the driver. Waits here as long as the driver has no room: its one thread for
   * messages of executors must not.
   */
  @Override
  public void send(byte[] data) {
    RegionalMessages.Sent message = new RegionalMessages.Sent(run, data);
    long pauseMs = FIRST_PAUSE_MS;
    while (true) {
      Object answer = driver.ask(message, "did not take a message of " + run.pipeline());
      if (!RegionalMessages.FULL.equals(answer)) {
        accepted(answer);
        return;
      }
      pause.accept(pauseMs);
      pauseMs = Math.min(2 * pauseMs, LONGEST_PAUSE_MS);
    }
  }

  @Override
  public void stage(String local, String staged, String target) throws IOException {
    output.stage(local, staged, target);
  }

  /** An answer that is no refusal. */
  static Object accepted(Object answer) {
    if (answer instanceof String why) {
      throw new IllegalStateException(why);
    }
    return answer;
  }
}
