package io.holdfast.spark.minor;

import java.util.concurrent.locks.ReentrantReadWriteLock;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;

/**
 * The part of a provider that Spark's background thread needs. Since 4.3 the interface has fields,
 * and the thread asks for a snapshot and for a clean-up in two calls.
 */
public abstract class MaintainedProvider implements StateStoreProvider {
  private volatile boolean unloaded;
  private ReentrantReadWriteLock maintenanceLock = new ReentrantReadWriteLock();

  /** Background maintenance calls it. Stores that unload with their task call the other method. */
  @Override
  public void doSnapshotMaintenance() {
    doMaintenance();
  }

  @Override
  public boolean unloaded() {
    return unloaded;
  }

  @Override
  public void unloaded_$eq(boolean value) {
    unloaded = value;
  }

  @Override
  public ReentrantReadWriteLock maintenanceLock() {
    return maintenanceLock;
  }

  @Override
  @SuppressWarnings("checkstyle:MethodName") // the name is what the Scala trait compiles to
  public void org$apache$spark$sql$execution$streaming$state$StateStoreProvider$_setter_$maintenanceLock_$eq(
      ReentrantReadWriteLock lock) {
    maintenanceLock = lock;
  }
}
