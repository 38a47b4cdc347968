package io.holdfast.spark.isolation;

import org.apache.spark.Partition;

/** A partition of an RDD of this package. */
interface OwnPartition extends Partition {
  /** Scala's compiler makes this method in each class; javac does not see it. */
  default boolean org$apache$spark$Partition$$super$equals(Object other) {
    return this == other;
  }
}
