package io.holdfast.spark;

import java.util.Arrays;
import java.util.List;

/**
 * From the driver to an executor: files of a folder, and a number.
 *
 * <p>Travels as text: an executor's messaging starts before it has the plugin's jar, so it cannot
 * read the plugin's classes.
 */
abstract class FilesMessage {
  private static final int FIRST_NAME = 3;

  final String dir;
  final String[] names;

  FilesMessage(String dir, List<String> names) {
    this.dir = dir;
    this.names = names.toArray(String[]::new);
  }

  /** Tells the kinds of messages apart. */
  abstract String tag();

  abstract long number();

  final String[] toWire() {
    String[] wire = new String[FIRST_NAME + names.length];
    wire[0] = tag();
    wire[1] = dir;
    wire[2] = Long.toString(number());
    System.arraycopy(names, 0, wire, FIRST_NAME, names.length);
    return wire;
  }

  static String dirOf(String[] wire) {
    return wire[1];
  }

  static long numberOf(String[] wire) {
    return Long.parseLong(wire[2]);
  }

  static List<String> namesOf(String[] wire) {
    return Arrays.asList(wire).subList(FIRST_NAME, wire.length);
  }
}
