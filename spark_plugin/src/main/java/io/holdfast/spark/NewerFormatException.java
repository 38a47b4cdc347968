package io.holdfast.spark;

/** A newer Holdfast wrote this, and it is intact: upgrade, and do not go back. */
public class NewerFormatException extends UnsupportedStateException {
  private static final long serialVersionUID = 1L;

  public NewerFormatException(String message) {
    super(message);
  }
}
