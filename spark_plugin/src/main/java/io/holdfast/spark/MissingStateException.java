package io.holdfast.spark;

/** A physical file that a version needs is gone; the message names file and owner. */
public class MissingStateException extends DamagedStateException {
  private static final long serialVersionUID = 1L;

  public MissingStateException(String message) {
    super(message);
  }
}
