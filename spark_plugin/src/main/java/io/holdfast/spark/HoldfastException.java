package io.holdfast.spark;

/** Something failed in Holdfast; the message names what, where, and what to do. */
public class HoldfastException extends RuntimeException {
  private static final long serialVersionUID = 1L;

  public HoldfastException(String message) {
    super(message);
  }

  public HoldfastException(String message, Throwable cause) {
    super(message, cause);
  }
}
