package io.holdfast.spark;

import java.io.Serializable;

/** From an executor to the driver: state files that could not be made durable. */
final class LostFiles implements Serializable {
  private static final long serialVersionUID = 1L;

  final String dir;
  final String executorId;
  final String[] names;

  LostFiles(String dir, String executorId, String[] names) {
    this.dir = dir;
    this.executorId = executorId;
    this.names = names;
  }
}
