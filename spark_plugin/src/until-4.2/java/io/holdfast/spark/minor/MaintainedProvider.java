package io.holdfast.spark.minor;

/** The part of a provider that Spark's background thread needs: nothing up to 4.2. */
public abstract class MaintainedProvider {}
