package io.holdfast.spark.executor;

import io.holdfast.spark.files.Compression;
import io.holdfast.spark.files.StagedOutput;
import java.io.IOException;

/**
 * Where Python workers of an executor introduce themselves. The native side calls these methods by
 * name (rust/jni/src/regional.rs).
 */
public interface WorkerHost {
  /**
   * A worker introduced itself.
   *
   * @param compression a {@link Compression#code}
   */
  Worker connect(String pipeline, String folder, long maxFileBytes, int compression);

  /** A worker that is connected. */
  interface Worker {
    /** Handle of the manager of its folder. */
    long manager();

    /** Hands bytes of the worker on to the driver. */
    void send(byte[] data);

    /** See {@link StagedOutput#stage}. */
    void stage(String local, String staged, String target) throws IOException;
  }
}
