package io.holdfast.spark;

import java.util.Arrays;
import java.util.List;

/**
 * From the driver to an executor: files of a folder that should go, so stores that need a part of
 * them shall write it again elsewhere. Travels as text like {@link SyncRequest}.
 */
final class WasteNotice {
  static final String TAG = "waste";

  final String dir;
  /** Bytes that nobody needs and that stay because of others in the same file. */
  final long pinnedBytes;

  final String[] names;

  WasteNotice(String dir, long pinnedBytes, List<String> names) {
    this.dir = dir;
    this.pinnedBytes = pinnedBytes;
    this.names = names.toArray(String[]::new);
  }

  String[] toWire() {
    String[] wire = new String[3 + names.length];
    wire[0] = TAG;
    wire[1] = dir;
    wire[2] = Long.toString(pinnedBytes);
    System.arraycopy(names, 0, wire, 3, names.length);
    return wire;
  }

  static WasteNotice fromWire(String[] wire) {
    List<String> names = Arrays.asList(wire).subList(3, wire.length);
    return new WasteNotice(wire[1], Long.parseLong(wire[2]), names);
  }
}
