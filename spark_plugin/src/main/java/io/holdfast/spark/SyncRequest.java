package io.holdfast.spark;

import java.util.Arrays;
import java.util.List;

/**
 * From the driver to an executor: files of one of its managers must become durable.
 *
 * <p>Travels as text, see {@link #toWire}: an executor's messaging starts before it has the plugin's
 * jar, so it cannot read the plugin's classes.
 */
final class SyncRequest {
  static final String TAG = "sync";

  final String dir;
  final long term;
  final String[] names;

  SyncRequest(String dir, long term, List<String> names) {
    this.dir = dir;
    this.term = term;
    this.names = names.toArray(String[]::new);
  }

  String[] toWire() {
    String[] wire = new String[3 + names.length];
    wire[0] = TAG;
    wire[1] = dir;
    wire[2] = Long.toString(term);
    System.arraycopy(names, 0, wire, 3, names.length);
    return wire;
  }

  static SyncRequest fromWire(String[] wire) {
    List<String> names = Arrays.asList(wire).subList(3, wire.length);
    return new SyncRequest(wire[1], Long.parseLong(wire[2]), names);
  }
}
