package io.holdfast.spark.executor;

import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** A manager of this executor: it writes the files of one folder, with one term. */
abstract class OpenManager {
  private static final Logger LOG = LoggerFactory.getLogger(OpenManager.class);

  final String dir;
  final long term;
  public final long handle;

  OpenManager(String dir, long term, long handle) {
    this.dir = dir;
    this.term = term;
    this.handle = handle;
    LOG.info("Holdfast writes to {} with term {}", dir, Long.toHexString(term));
  }

  /** Seals its files; returns warnings for the log. */
  abstract String[] sealFiles();

  /** Returns false if a file could not be sealed. Readers scan a file without a footer. */
  final boolean seal() {
    try {
      warn(sealFiles());
      return true;
    } catch (RuntimeException e) {
      LOG.warn("The last file in {} could not be sealed", dir, e);
      return false;
    }
  }

  static void warn(String[] warnings) {
    for (String warning : warnings) {
      LOG.warn("{}", warning);
    }
  }
}
