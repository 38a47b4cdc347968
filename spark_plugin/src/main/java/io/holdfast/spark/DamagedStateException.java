package io.holdfast.spark;

/** A physical file is gone, cut or altered; the message names file, offset and owner. */
public class DamagedStateException extends HoldfastException {
  private static final long serialVersionUID = 1L;

  public DamagedStateException(String message) {
    super(message);
  }
}
