package io.holdfast.spark;

import java.util.List;

/** From the driver to an executor: files of one of its managers must become durable. */
final class SyncRequest extends FilesMessage {
  static final String TAG = "sync";

  final long term;

  SyncRequest(String dir, long term, List<String> names) {
    super(dir, names);
    this.term = term;
  }

  @Override
  String tag() {
    return TAG;
  }

  @Override
  long number() {
    return term;
  }

  static SyncRequest fromWire(String[] wire) {
    return new SyncRequest(dirOf(wire), numberOf(wire), namesOf(wire));
  }
}
