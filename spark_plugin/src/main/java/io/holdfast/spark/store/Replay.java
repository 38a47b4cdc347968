package io.holdfast.spark.store;

import org.apache.hadoop.conf.Configuration;

/**
 * A task that replays parked input, a pass for each batch. All passes are one session of each store,
 * with one commit at the end of the last one.
 */
public final class Replay {
  private final Configuration conf;
  private volatile boolean last;

  /**
   * @param conf Hadoop's settings of the query
   */
  public Replay(Configuration conf) {
    this.conf = conf;
  }

  public Configuration conf() {
    return conf;
  }

  /** The pass of the batch itself begins. */
  public void lastPass() {
    last = true;
  }

  boolean goesOn() {
    return !last;
  }
}
