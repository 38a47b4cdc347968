package io.holdfast.spark.executor;

import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;

/**
 * The replay of a partition's pending rows in a task, a pass for each batch. All passes are one
 * session of each store, with one commit at the end of the last pass.
 */
public final class Replay {
  /** The pass of the batch itself. */
  public static final int LAST = Integer.MAX_VALUE;

  private final int partition;
  private final Configuration conf;
  private final List<Integer> waits;
  private final String failure;
  private final List<String> kept = new ArrayList<>();
  private volatile int pass;

  /**
   * @param conf Hadoop's settings of the query
   * @param waits groups of keys whose rows remain pending
   * @param failure the last known failure of the partition's task
   */
  public Replay(int partition, Configuration conf, List<Integer> waits, String failure) {
    this.partition = partition;
    this.conf = conf;
    this.waits = waits;
    this.failure = failure;
  }

  public int partition() {
    return partition;
  }

  public Configuration conf() {
    return conf;
  }

  public List<Integer> waits() {
    return waits;
  }

  public String failure() {
    return failure;
  }

  /** A part of an input, with this id, waits with the commit. Inputs arrive oldest first. */
  public void keeps(String input) {
    kept.add(input);
  }

  public String[] kept() {
    return kept.toArray(String[]::new);
  }

  /** Passes of older batches have lower numbers. */
  public void begin(int next) {
    pass = next;
  }

  public int pass() {
    return pass;
  }

  public boolean goesOn() {
    return pass != LAST;
  }
}
