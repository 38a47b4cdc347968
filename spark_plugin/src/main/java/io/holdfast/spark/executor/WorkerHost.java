package io.holdfast.spark.executor;

import io.holdfast.spark.merged.Compression;
import java.io.IOException;

/** Receives Python workers of an executor. The native side calls it (rust/jni/src/regional.rs). */
public interface WorkerHost {
  /** A worker introduced itself. The compression is a {@link Compression#code}. */
  Worker connect(String pipeline, String folder, long maxFileBytes, int compression);

  /** A worker that is connected. */
  interface Worker {
    /** Handle of the manager of its folder. */
    long manager();

    /** Passes bytes of the worker on to the driver. */
    void send(byte[] data);

    /** Stages output of the worker. */
    void stage(String local, String staged, String target) throws IOException;
  }
}
