/** State stores of partitions: they run on executors, the driver lists their metrics. */
package io.holdfast.spark.store;
