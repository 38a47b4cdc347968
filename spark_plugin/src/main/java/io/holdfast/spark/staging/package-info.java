/** Output in two steps: staged by tasks, published by the driver. */
package io.holdfast.spark.staging;
