/** Merged files of segments, their ids and folders, and the way to them over Hadoop. */
package io.holdfast.spark.merged;
