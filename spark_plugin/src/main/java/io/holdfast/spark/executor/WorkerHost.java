package io.holdfast.spark.executor;

import io.holdfast.spark.merged.Compression;
import java.io.IOException;

/** The native side calls it for Python workers (rust/jni/src/regional.rs). */
public interface WorkerHost {
  /** A worker introduced itself. The compression is a {@link Compression#code}. */
  Worker connect(String pipeline, String folder, long maxFileBytes, int compression);

  interface Worker {
    /** Handle of the manager of its folder. */
    long manager();

    void send(byte[] data);

    void stage(String local, String staged, String target) throws IOException;
  }
}
