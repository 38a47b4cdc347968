/**
 * The classes that Spark, settings and Python name, on the driver and on executors: the plugin, the state
 * store provider, the file manager of checkpoints, the session extensions and the bridge of regional
 * pipelines. Settings, exceptions and native methods are here as well, for the other packages.
 */
package io.holdfast.spark;
