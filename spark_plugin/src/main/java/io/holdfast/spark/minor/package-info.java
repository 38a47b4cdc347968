/** What differs between the minors of Spark: every class here has one form per range of minors. */
package io.holdfast.spark.minor;
