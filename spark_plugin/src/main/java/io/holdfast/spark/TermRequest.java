package io.holdfast.spark;

import java.io.Serializable;

/** From an executor to the driver: a new manager incarnation wants a term. */
final class TermRequest implements Serializable {
  private static final long serialVersionUID = 1L;

  final String dir;
  final String executorId;

  TermRequest(String dir, String executorId) {
    this.dir = dir;
    this.executorId = executorId;
  }
}
