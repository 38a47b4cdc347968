/**
 * The classes that Spark, settings and Python name, on the driver and on executors. Settings,
 * exceptions and native methods are here as well, for the other packages.
 */
package io.holdfast.spark;
