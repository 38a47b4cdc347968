package io.holdfast.spark.store;

import org.apache.hadoop.conf.Configuration;

/**
 * A task that replays parked input, a pass for each batch. All passes are one session of each store,
 * with one commit at the end of the last one.
 */
public final class Replay {
  /** The pass of the batch itself. */
  public static final int LAST = Integer.MAX_VALUE;

  private final Configuration conf;
  private volatile int pass;

  /**
   * @param conf Hadoop's settings of the query
   */
  public Replay(Configuration conf) {
    this.conf = conf;
  }

  public Configuration conf() {
    return conf;
  }

  /** A pass begins. Passes of older batches have lower numbers. */
  public void begin(int next) {
    pass = next;
  }

  public int pass() {
    return pass;
  }

  boolean goesOn() {
    return pass != LAST;
  }
}
