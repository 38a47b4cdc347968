package io.holdfast.spark.executor;

import io.holdfast.spark.merged.WriterStats;

/**
 * The work of a manager since one of its stores last asked, so that the sum over all tasks is
 * right. Pinned bytes, which no retained batch needs, come from the driver's last notice.
 */
public record ManagerTotals(WriterStats written, long sealMs, long pinnedBytes) {
  public static final ManagerTotals NOTHING = new ManagerTotals(WriterStats.NOTHING, 0, 0);
}
