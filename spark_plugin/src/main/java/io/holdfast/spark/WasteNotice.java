package io.holdfast.spark;

import java.util.List;

/**
 * From the driver to an executor: files of a folder that should go, so stores that need a part of
 * them shall write it again elsewhere.
 */
final class WasteNotice extends FilesMessage {
  static final String TAG = "waste";

  /** Bytes that nobody needs and that stay because of others in the same file. */
  final long pinnedBytes;

  WasteNotice(String dir, long pinnedBytes, List<String> names) {
    super(dir, names);
    this.pinnedBytes = pinnedBytes;
  }

  @Override
  String tag() {
    return TAG;
  }

  @Override
  long number() {
    return pinnedBytes;
  }

  static WasteNotice fromWire(String[] wire) {
    return new WasteNotice(dirOf(wire), numberOf(wire), namesOf(wire));
  }
}
