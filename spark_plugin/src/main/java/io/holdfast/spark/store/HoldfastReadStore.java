package io.holdfast.spark.store;

import org.apache.spark.sql.execution.streaming.state.StateStore;
import scala.Option;

/** One version of a store, for reading. */
public final class HoldfastReadStore extends OpenedVersion {
  /** Null until Spark changes this version. */
  private HoldfastStateStore writer;

  public HoldfastReadStore(
      StoreContext context, NativeStore nativeStore, long version, TimedStats statsBefore) {
    super(context, nativeStore, version, statsBefore);
  }

  public StateStore write(Option<String> id) {
    session.requireOpen();
    try {
      nativeStore.begin();
      writer = new HoldfastStateStore(this, id);
      return writer;
    } catch (RuntimeException e) {
      nativeStore.releaseOutsideTask();
      throw e;
    }
  }

  /** Returns a store that puts the rows of this version into an empty store. */
  public StateStore fill() {
    nativeStore.begin();
    return new HoldfastStateStore(this, Option.empty());
  }

  @Override
  public void abort() {
    if (writer != null) {
      writer.abort();
    } else if (session.abort()) {
      nativeStore.releaseOutsideTask();
    }
  }

  public void release() {
    if (writer != null) {
      writer.release();
    } else if (session.release()) {
      nativeStore.releaseOutsideTask();
    }
  }
}
