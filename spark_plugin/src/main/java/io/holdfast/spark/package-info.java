/**
 * What Spark, settings and Python name, on the driver and on executors: the plugin, the state store
 * provider, the file manager of checkpoints, the session extensions and the bridge of regional
 * pipelines; below them, settings, exceptions and native methods, which the other packages use.
 */
package io.holdfast.spark;
