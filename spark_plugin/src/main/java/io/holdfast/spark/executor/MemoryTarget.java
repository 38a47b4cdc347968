package io.holdfast.spark.executor;

import io.holdfast.spark.HoldfastConf;
import java.util.OptionalLong;
import org.apache.spark.SparkConf;

/**
 * The native memory above which the stores of this executor leave state in runs.
 *
 * @param bytes 0 for three quarters of the limit
 * @param origin the source of the figure, for people
 * @param isChosen whether by settings; else a share of executor memory, which few executors reach
 */
public record MemoryTarget(long bytes, String origin, boolean isChosen) {
  static final long NONE = Long.MAX_VALUE; // never reached

  /** Classes, compiled code, stacks, network buffers and often Python workers need memory, too. */
  private static final int OF_CONTAINER = 2;

  /** Other processes share the machine, and other executors as well. */
  private static final int OF_MACHINE = 4;

  /** Room for more than a million small keys. A smaller share would cost small jobs too much. */
  private static final long LEAST_BYTES = 128L << 20;

  /**
   * @param limitBytes {@code maxMemoryBytes}, 0 for none
   * @param wanted {@code targetMemoryBytes}: empty for {@code auto}, 0 for none
   */
  public static MemoryTarget of(long limitBytes, OptionalLong wanted, MemoryFacts facts) {
    if (wanted.isPresent()) {
      long bytes = wanted.getAsLong();
      return bytes == 0
          ? new MemoryTarget(NONE, "any size, as targetMemoryBytes is 0", false)
          : new MemoryTarget(bytes, "targetMemoryBytes", true);
    }
    if (limitBytes > 0) {
      return new MemoryTarget(0, "three quarters of maxMemoryBytes, " + mib(limitBytes), true);
    }
    if (facts.isContainerOfSpark()) {
      return share(OF_CONTAINER, facts.overheadBytes(), "half of the memory overhead, ");
    }
    boolean isContainer = facts.limitBytes() < facts.machineBytes();
    long left = facts.limitBytes() - facts.heapBytes() - facts.otherBytes();
    return isContainer
        ? share(OF_CONTAINER, left, "half of what the heap leaves of the container, ")
        : share(OF_MACHINE, left, "a quarter of what the heap leaves of the machine, ");
  }

  /** For commands: the target of an executor with these settings that is like this process. */
  public static MemoryTarget here(SparkConf conf) {
    HoldfastConf settings = HoldfastConf.of(conf);
    return of(settings.maxMemoryBytes, settings.targetMemoryBytes, MemoryFacts.here(conf));
  }

  private static MemoryTarget share(int part, long of, String origin) {
    long bytes = of / part;
    return bytes >= LEAST_BYTES
        ? new MemoryTarget(bytes, origin + mib(of), false)
        : new MemoryTarget(LEAST_BYTES, "the least, as " + origin + mib(of) + ", is less", false);
  }

  public String text() {
    return bytes == 0 || bytes == NONE ? origin : mib(bytes) + ", " + origin;
  }

  private static String mib(long bytes) {
    return (bytes >> 20) + " MiB";
  }
}
