package io.holdfast.spark;

/** Texts that more than one place says. */
final class Messages {
  private Messages() {}

  static String formatTooOld(String found) {
    return "Holdfast needs state store checkpoint format 2, found "
        + found
        + ". Set "
        + HoldfastConf.FORMAT_KEY
        + "=2 (holdfast.configure does) and start with a new checkpoint folder: a checkpoint keeps"
        + " the format it was made with.";
  }
}
