package io.holdfast.spark.isolation;

import org.apache.spark.Partition;

/**
 * A partition of a guarded stage.
 *
 * @param inputs by exchange, its partition
 * @param passes by pass, the partition of its stage; null where nothing is pending
 * @param base ids of the stores; null before the first batch
 */
record GuardedPartition(
    int index, Partition stage, Partition[] inputs, Partition[] passes, String[] base)
    implements OwnPartition {}
