package io.holdfast.spark;

import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * The one class with native methods. Handles are numbers that are never reused, so a call after
 * close throws {@link IllegalStateException}. The native side is rust/jni.
 *
 * <p>Errors arrive as {@link DamagedStateException}, {@link UnsupportedStateException}, {@link
 * IllegalArgumentException} (a wrong call) or {@link HoldfastException} (storage, or a bug).
 */
final class Native {
  static final int COMPRESSION_NONE = 0;
  static final int COMPRESSION_LZ4 = 1;

  static {
    load();
  }

  private Native() {}

  /**
   * Opens the executor's manager of one checkpoint root.
   *
   * @param dir path of the folder, or its URI where {@code files} is given
   * @param files how to reach the files; null for a local folder
   * @param term 0 opens it for reading only
   */
  static native long openManager(
      String dir, HadoopFiles files, long term, long maxFileBytes, int compression);

  /** Makes these files of the manager survive a machine crash; seals them on object stores. */
  static native void syncFiles(long manager, String[] names);

  /** Seals the open file. */
  static native void seal(long manager);

  static native void closeManager(long manager);

  static native long openStore(long manager, String operator, String partition, String store);

  static native void closeStore(long store);

  /** Positions the store at a version; {@code id} is null for version 0. */
  static native void load(long store, long version, String id);

  static native void begin(long store);

  /** Length of the value, -1 without such a key; above {@code outLen} nothing was copied. */
  static native int get(long store, long key, int keyLen, long out, int outLen);

  static native void put(long store, long key, int keyLen, long value, int valueLen);

  static native boolean remove(long store, long key, int keyLen);

  static native int scanEnd(long store);

  /** Entries from a position; {@code progress} receives the next position and their number. */
  static native byte[] scan(long store, int from, int end, int maxBytes, long[] progress);

  /** Writes what changed; returns the id of the next version. */
  static native String commit(long store);

  static native void abort(long store);

  /** Version of the base image that was written, -1 when none was due. */
  static native long writeBaseImage(long store, int minChangelogs);

  /** Keys, memory bytes, loads, rewinds, bytes written, empty commits, commits with changes. */
  static native long[] storeStats(long store);

  /** Highest term that a file in {@code dir} carries, 0 without files. */
  static native long newestTerm(String dir, HadoopFiles files);

  /** Names of files that could not be made durable, one a line; null without any. */
  static native String lostFiles(long manager);

  /** Files the ids refer to, a line each: name, space, end of the last segment referred to. */
  static native String referencedEnds(String[] ids);

  /** Makes a file whose writer is gone survive a machine crash, and checks that it has its end. */
  static native void adoptFile(String dir, HadoopFiles files, String file, long end);

  /**
   * Deletes files that nobody appends to and that hold nothing a retained version needs.
   *
   * @param partitions {@code operator/partition} of each id
   * @param ids ids of the oldest retained entry of the commit log
   * @param liveTerms terms that may still append
   * @param lastTerm later terms may append as well
   * @return what was done, null when nothing was
   */
  static native String reclaim(
      String dir,
      HadoopFiles files,
      String[] partitions,
      String[] ids,
      long[] liveTerms,
      long lastTerm);

  private static void load() {
    String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String arch = System.getProperty("os.arch");
    String platform = os + "-" + (arch.equals("amd64") ? "x86_64" : arch);
    String resource = "/native/" + platform + "/libholdfast_jni.so";
    try (InputStream in = Native.class.getResourceAsStream(resource)) {
      if (in == null) {
        throw new HoldfastException(
            "The Holdfast jar holds no native library for "
                + platform
                + " (no resource "
                + resource
                + "). Install the holdfast wheel built for this platform, or build it there with"
                + " 'make wheel'.");
      }
      // A JVM loads a library file only once per class loader: every loader gets its own copy.
      Path file = Files.createTempFile("libholdfast_jni-", ".so");
      try {
        Files.copy(in, file, StandardCopyOption.REPLACE_EXISTING);
        System.load(file.toAbsolutePath().toString());
      } finally {
        // The mapping outlives the name.
        Files.deleteIfExists(file);
      }
    } catch (IOException | UnsatisfiedLinkError e) {
      throw new HoldfastException(
          "The Holdfast native library could not be loaded from "
              + resource
              + " by way of "
              + System.getProperty("java.io.tmpdir")
              + ": "
              + e.getMessage()
              + ". The folder must be writable and allow execution (set java.io.tmpdir).",
          e);
    }
  }
}
