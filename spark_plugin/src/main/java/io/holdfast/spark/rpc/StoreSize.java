package io.holdfast.spark.rpc;

import java.io.Serializable;

/** A state store that an executor has open, with the bytes of its state in files. */
public record StoreSize(long operator, int partition, String store, long bytes)
    implements Serializable {}
