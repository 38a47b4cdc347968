package io.holdfast.spark;

/** A checkpoint, setting or operator that this version of Holdfast cannot serve. */
public class UnsupportedStateException extends HoldfastException {
  private static final long serialVersionUID = 1L;

  public UnsupportedStateException(String message) {
    super(message);
  }
}
