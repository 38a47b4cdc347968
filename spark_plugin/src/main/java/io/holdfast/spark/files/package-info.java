/** Files, their names and folders, and Hadoop's ways to them: runs on driver and executors. */
package io.holdfast.spark.files;
