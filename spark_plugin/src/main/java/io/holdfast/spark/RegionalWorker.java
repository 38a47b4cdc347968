package io.holdfast.spark;

/**
 * A Python worker that is connected to this executor. The native side calls these methods by name
 * (rust/jni/src/regional.rs).
 */
final class RegionalWorker {
  private static final long FIRST_PAUSE_MS = 5;
  private static final long LONGEST_PAUSE_MS = 200;

  private final RegionalManagers managers;
  private final RegionalMessages.Run run;
  private final long manager;

  RegionalWorker(RegionalManagers managers, RegionalMessages.Run run, long manager) {
    this.managers = managers;
    this.run = run;
    this.manager = manager;
  }

  /** Handle of the manager of its folder. */
  long manager() {
    return manager;
  }

  /**
   * Hands bytes on to the driver. Waits here as long as the driver has no room: its one thread for
   * messages of executors must not.
   */
  void send(byte[] data) {
    RegionalMessages.Sent message = new RegionalMessages.Sent(run, data);
    long pause = FIRST_PAUSE_MS;
    while (true) {
      Object answer = managers.driver().ask(message, "did not take a message of " + run.pipeline());
      if (!RegionalMessages.FULL.equals(answer)) {
        accepted(answer);
        return;
      }
      managers.pause(pause);
      pause = Math.min(2 * pause, LONGEST_PAUSE_MS);
    }
  }

  /** An answer that is no refusal. */
  static Object accepted(Object answer) {
    if (answer instanceof String why) {
      throw new IllegalStateException(why);
    }
    return answer;
  }
}
