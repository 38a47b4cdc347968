package io.holdfast.spark;

/** A newer application, or a newer manager, works in the folder. This one must not continue. */
public class FencedException extends HoldfastException {
  private static final long serialVersionUID = 1L;

  public FencedException(String message) {
    super(message);
  }
}
