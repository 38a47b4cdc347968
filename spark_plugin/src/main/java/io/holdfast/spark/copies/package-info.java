/** Copies of what commits append to objects that are not finished, on another executor. */
package io.holdfast.spark.copies;
