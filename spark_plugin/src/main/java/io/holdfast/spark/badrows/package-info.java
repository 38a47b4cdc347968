/** Rows before the shuffle that throw: they are set aside, and the batch goes on without them. */
package io.holdfast.spark.badrows;
