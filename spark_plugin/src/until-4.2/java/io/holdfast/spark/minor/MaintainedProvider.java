package io.holdfast.spark.minor;

/** What a provider has so that Spark's background thread maintains it: nothing up to 4.2. */
public abstract class MaintainedProvider {}
