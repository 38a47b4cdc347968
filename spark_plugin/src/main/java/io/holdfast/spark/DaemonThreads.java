package io.holdfast.spark;

import java.util.concurrent.ThreadFactory;

/** Threads that do not keep a JVM from ending. */
public final class DaemonThreads {
  private DaemonThreads() {}

  public static ThreadFactory named(String name) {
    return task -> {
      Thread thread = new Thread(task, name);
      thread.setDaemon(true);
      return thread;
    };
  }
}
