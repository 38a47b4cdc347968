package io.holdfast.spark;

import io.holdfast.spark.executor.WorkerHost;
import io.holdfast.spark.merged.Compression;
import io.holdfast.spark.merged.FileEnd;
import io.holdfast.spark.merged.FileId;
import io.holdfast.spark.merged.HadoopFolder;
import io.holdfast.spark.merged.Reclaimed;
import io.holdfast.spark.merged.WriterStats;
import io.holdfast.spark.store.StoreStats;
import java.io.IOException;
import java.io.InputStream;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardCopyOption;
import java.util.Locale;

/**
 * The one class with native methods. The native side is rust/jni. A call after close throws {@link
 * IllegalStateException}, because handles have a generation.
 *
 * <p>Errors arrive as {@link DamagedStateException}, {@link MissingStateException}, {@link
 * UnsupportedStateException}, {@link NewerFormatException}, {@link FencedException}, {@link
 * IllegalArgumentException} (a wrong call) or {@link HoldfastException} (storage, or a bug).
 */
public final class Native {
  public static final int ONLY_FAMILY = 1; // without column families
  public static final int ORDERED = 1; // serves scans by prefix and range
  public static final int SEVERAL_VALUES = 2; // a list of values per key
  public static final int INTERNAL = 4; // Spark's own, whose keys are not counted

  // Scans with an entry per key or per value: between two bounds, with a prefix, or of one key.
  public static final int SCAN_KEYS = 0;
  public static final int SCAN_VALUES = 1;
  public static final int SCAN_PREFIX = 2;
  public static final int SCAN_PREFIX_VALUES = 3;
  public static final int SCAN_VALUES_OF_KEY = 4;

  public static final int CHANGE_REMOVE = 1;
  public static final int CHANGE_APPEND = 2;

  static {
    load();
  }

  private Native() {}

  /**
   * Opens the executor's manager of one checkpoint root.
   *
   * @param dir path of the folder, or its URI if {@code files} is not null
   * @param files how to reach the files; null for a local folder
   * @param term 0 opens it for reading only
   * @param compression a {@link Compression#code}
   * @param copies whether {@link #takeUncopied} has something to return
   */
  public static native long openFolder(
      String dir,
      HadoopFolder files,
      long term,
      long maxFileBytes,
      int compression,
      boolean copies);

  /**
   * Bytes that were appended to unfinished files since the last call, up to 32 MiB of each; empty
   * once all are taken. For each file its number and the number of its bytes, 8 bytes each, then its
   * bytes.
   */
  public static native byte[] takeUncopied(long folder);

  /**
   * Facts about files that were finished since the last call, for {@link #learnFiles}. Empty where
   * files are seen while they are written.
   */
  public static native byte[] takeFinished(long folder);

  /** Makes these files survive a machine crash; seals them on object stores. */
  public static native void syncFiles(long folder, long[] numbers);

  /** Closes the open file if it was deleted from outside. */
  public static native void leaveDeletedFile(long folder);

  public static native void seal(long folder);

  public static native void closeFolder(long folder);

  /** Returns true if commits cannot refer to runs of a merge before their file is closed. */
  public static native boolean hasPendingRuns(long folder);

  /** Closes the files of these runs. A file that a merge writes to is closed after the merge. */
  public static native void sealPendingRuns(long folder);

  /**
   * Limits the native memory of all stores of this process, in bytes; 0 for no limit. Above the
   * target, stores keep only state that they use; 0 for three quarters of the limit.
   */
  public static native void limitMemory(long limit, long target);

  /** Returns true if stores of this process ever took more than the target. */
  public static native boolean wasShortOfMemory();

  /** Keeps pages of remote files in a nameless file of {@code dir}; none if below 256 KiB. */
  public static native void keepLocally(String dir, long bytes);

  /** Bytes in the local cache, its hits, and reads of remote files. */
  public static native long[] localCache();

  /** Why the local cache ended since the last call: its disk is full or fails. Else null. */
  public static native String takeCacheFailure();

  /** Bytes of all stores of this process. */
  public static native long usedMemory();

  /**
   * Without column families, {@code options} like {@code ORDERED} describe the only family.
   *
   * @param journal whether sessions record every operation, for {@link #changes}
   */
  public static native long openStore(
      long folder,
      String operator,
      String partition,
      String store,
      boolean columns,
      int options,
      boolean journal);

  public static native void closeStore(long store);

  /** Keeps at most so many of the newest versions in memory. */
  public static native void retain(long store, int versions);

  /** Loads a version; {@code id} is null for version 0. Returns damage it went around, or null. */
  public static native String load(long store, long version, String id);

  /** The store's own id among the ids of all stores of the partition; null without one. */
  public static native String ownId(long store, long version, String[] ids);

  /** Positions the store at a version without content. */
  public static native void openEmpty(long store, long version);

  /**
   * Positions the store at an older version, and applies the changes of later commits.
   *
   * @param fromId null for version 0
   * @param ids of the later versions, of all stores of the partition
   */
  public static native void replay(
      long store, long fromVersion, String fromId, String toId, String[] ids);

  /**
   * The changes of one commit in one family: all operations in their order if the commit recorded
   * them, else the last change of each key. Each is {@code kind u8, key_len u32, value_len u32,
   * key, value}, with a {@code CHANGE_} constant as kind.
   *
   * @param ids of the version, of all stores of the partition
   */
  public static native byte[] changes(
      long store, long version, String[] ids, int family, int options);

  public static final int WANTS_HYDRATION = 1; // hydrate has work to do
  public static final int WANTS_MERGE = 2; // mergeChangelogs must not wait for maintenance

  /** Begins a session; returns the sum of the {@code WANTS_} constants that apply. */
  public static native int begin(long store);

  /** Brings some state from runs into memory, also while a task uses the store. */
  public static native int hydrate(long store);

  // Results of hydrate. Later: the store's own task hydrates it now.
  public static final int HYDRATED = 0;
  public static final int MORE_TO_HYDRATE = 1;
  public static final int HYDRATE_LATER = 2;

  /** Damage that a store went around since the last call, or null. */
  public static native String takeWarning(long store);

  /** 0 if the store has no column family of this name. */
  public static native int findFamily(long store, String name);

  /** Makes a column family unless it exists; returns its number. */
  public static native int openFamily(long store, String name, int options);

  /** Removes a column family with its content; returns false if there was none. */
  public static native boolean removeFamily(long store, String name);

  public static native String[] familyNames(long store);

  /** Length of the value, -1 without such a key. Copies nothing if it is above {@code outLen}. */
  public static native int get(long store, int family, long key, int keyLen, long out, int outLen);

  public static native void put(
      long store, int family, long key, int keyLen, long value, int valueLen);

  /** Sets the values of a key, or appends to them; {@code values} are {@code len u32, bytes}. */
  public static native void writeList(
      long store, int family, long key, int keyLen, long values, int valuesLen, boolean append);

  public static native boolean remove(long store, int family, long key, int keyLen);

  /**
   * The first entries of a new scan, each {@code key_len u32, value_len u32, key, value}.
   *
   * @param what one of the {@code SCAN_} constants
   * @param fromLen negative for no bound; {@code toLen} as well
   * @param progress receives the number of the scan, 0 if it is over, and the number of entries
   */
  public static native byte[] scan(
      long store,
      int family,
      int what,
      long from,
      int fromLen,
      long to,
      int toLen,
      int maxBytes,
      long[] progress);

  public static native byte[] scanOn(long store, int scan, int maxBytes, long[] progress);

  public static native void closeScan(long store, int scan);

  /** Writes the changes; returns the id of the next version. */
  public static native String commit(long store);

  public static native void abort(long store);

  /** Begins to park the version after this one, whose {@code id} is null for version 0. */
  public static native long park(long store, long version, String id);

  /**
   * Begins to store a part of a version's input again, for the version {@code commit}. {@link
   * #finishParking} returns an id for {@link #waitingFor}.
   */
  public static native long keep(long store, long version, long commit);

  /** An id with only one of the inputs of a version, for {@link #waitingFor}. */
  public static native String inputAlone(String id, long version);

  /** The id of a commit that waits for these inputs, oldest first. */
  public static native String waitingFor(String id, String[] inputs);

  public static native void appendInput(long parking, byte[] bytes, int length);

  /** Returns the id of the parked version with input of so many rows, and closes the handle. */
  public static native String finishParking(long parking, long rows);

  public static native void closeParking(long parking);

  public static native String idPrefix();

  public static native String viewPrefix();

  /** Batch, old and new number of partitions and store of a view, then partitions and ids. */
  public static native String[] readView(String id);

  /** Inverse of {@link #readView}; {@code parents} are partitions and ids in turn. */
  public static native String viewId(long batch, int from, int to, String store, String[] parents);

  /** The id of a later version with the same content. */
  public static native String idAt(String id, long version);

  /** Versions whose input this id waits for, oldest first; none for a view. */
  public static native long[] pendingVersions(String id);

  /** The reference of the last piece of one of these inputs. */
  public static native byte[] pendingSegment(String id, long version);

  /** Version, rows and bytes of each input that this id waits for, oldest first. */
  public static native long[] pending(long store, String id);

  public static native long openPending(long store, String id, long version);

  /** The next bytes of the input, verified; none at its end. */
  public static native byte[] readPending(long reading, int maxBytes);

  public static native void closePending(long reading);

  /** Opens the machine that isolates failures in one run of a query. */
  public static native long openRun(String id, String checkpoint);

  /** Opens the machine that sets bad rows of one source aside in one run of a query. */
  public static native long openRowsRun();

  /** Adds a marker that is durable; returns false if it is damaged. */
  public static native boolean knowMarker(long run, long batch, byte[] marker);

  /** The durable marker of a batch; null without one. */
  public static native String markerOf(long run, long batch);

  /** Tells a machine what happened in a batch; returns its actions. Both are JSON. */
  public static native byte[] tellRun(long run, long batch, byte[] fact);

  public static native void closeRun(long run);

  /** Allows the open session to commit on top of a parked version. */
  public static native void markReplayed(long store);

  /**
   * Merges changelogs into a run if that is due, or if the store needs a part of a wasteful file.
   * Returns the newest version that loads from runs and few changelogs; -1 without one.
   */
  public static native long mergeChangelogs(long store, int minChangelogs, FileId[] wasteful);

  public static native StoreStats storeStats(long store);

  /** Opens a cache for indexes of sealed files, which {@link #reclaim} uses. */
  public static native long openIndexCache();

  public static native void closeIndexCache(long cache);

  /** Sets the umask of all files and folders that this process makes on local disks from now on. */
  public static native void setLocalUmask(int umask);

  /** Newest term of a file that is none of these, and newest that is one; 0 without one. */
  public static native long[] newestTerms(String dir, HadoopFolder files, long[] own);

  /** The driver's next step for a manager that wants a term, and its term, see {@code Terms}. */
  public static native long[] nextTerm(
      long older, long marker, boolean runs, long newest, long held, long clock);

  /** Makes a marker durable in a folder of markers, and then deletes those of older terms. */
  public static native void markTerm(String dir, HadoopFolder files, long term);

  public static native WriterStats writerStats(long folder);

  /** Numbers of the files that could not be made durable; their term is the manager's. */
  public static native long[] lostFiles(long folder);

  /** Warnings about files that failed no call. Each warning is returned once. */
  public static native String[] takeWarnings(long folder);

  public static native FileEnd[] referencedEnds(String[] ids);

  /** The next step of the driver for a file that a batch needs, see {@code FileFacts}. */
  public static native int nextStep(
      long end, boolean isLost, int writer, long stored, int copied);

  /** Makes a file of a writer that is gone survive a machine crash. Its length; 0 without the file. */
  public static native long lookAtFile(String dir, HadoopFolder files, long term, long number);

  /**
   * Makes a file from copies of all that was appended to it, unless there is one. Returns facts
   * about it, for {@link #learnFiles}.
   */
  public static native byte[] createFromCopies(
      String dir, HadoopFolder files, long term, long number, byte[] bytes);

  /** Learns of finished files, so that {@link #reclaim} does not read them. */
  public static native void learnFiles(long cache, String dir, byte[] told);

  /** All known files of a folder, for {@link #writeCatalog}. */
  public static native byte[] catalog(long cache, String dir);

  /**
   * Learns of the files of {@code dir} in all catalogs of the folder {@code beside}. Returns the
   * names of the catalogs.
   */
  public static native String[] readCatalogs(
      long cache, String dir, String beside, HadoopFolder files);

  /**
   * Writes a catalog, and then deletes those that it replaces. Returns its name.
   *
   * @param term of this application
   * @param number greater than those of earlier catalogs
   */
  public static native String writeCatalog(
      String beside,
      HadoopFolder files,
      long term,
      long number,
      byte[] content,
      String[] replaced);

  /**
   * Deletes files that no manager appends to and no retained version needs.
   *
   * @param cache of {@link #openIndexCache}
   * @param partitions {@code operator/partition} of each id
   * @param ids of the oldest retained entry of the commit log
   * @param oldest its batch
   * @param nowMs the time in milliseconds since 1970
   * @param liveTerms terms that may still append
   * @param ownTerms terms that this application gave
   * @param olderTerm this and all older terms are known; a file of another unknown term stops the
   *     call
   * @param told whether executors tell of the files that they finish
   * @param lists whether to list the files; else only known ones are judged
   */
  public static native Reclaimed reclaim(
      long cache,
      String dir,
      HadoopFolder files,
      String leases,
      HadoopFolder leaseFiles,
      String[] partitions,
      String[] ids,
      long oldest,
      long nowMs,
      long[] liveTerms,
      long[] ownTerms,
      long olderTerm,
      boolean told,
      boolean lists);

  /** Listens for Python workers, which have these folders in {@code SPARK_LOCAL_DIRS}. */
  public static native long listen(String localDirs);

  public static native String socketAddress(long listener);

  /** Waits for the next worker; 0 after the listener was stopped. */
  public static native long accept(long listener);

  /** Serves a worker until it leaves; calls {@code host}. */
  public static native void serve(long connection, WorkerHost host);

  public static native void stopListening(long listener);

  /**
   * Opens the executor's manager of a regional pipeline; see {@link #openFolder}.
   *
   * @param liveTerms older terms whose managers may still be at work
   * @param wasteful names of files of ended managers, a line each, whose segments are written again
   */
  public static native long openRegional(
      String dir,
      HadoopFolder files,
      long term,
      long[] liveTerms,
      String wasteful,
      long maxFileBytes,
      int compression);

  /** Seals the files of a manager and closes it; returns warnings for the log. */
  public static native String[] closeRegional(long manager);

  /** Takes a message about a checkpoint; returns warnings for the log. */
  public static native String[] tellRegional(long manager, byte[] message);

  /** Opens a folder to read segments one after the other, without a manager. */
  static native long openStored(String dir, HadoopFolder files);

  public static native void closeStored(long stored);

  /** The payload of a segment, after all of it was verified; checkpoints have its reference. */
  public static native byte[] readSegment(
      long stored, byte[] reference, String pipeline, String operator, String region, String store);

  /** The content of a segment of a state store, verified, encoded by the core. */
  public static native byte[] inspectSegment(long stored, byte[] reference);

  /** Size of the payload that {@link #readSegment} returns. */
  public static native long segmentBytes(
      long stored, byte[] reference, String pipeline, String operator, String region, String store);

  /**
   * Copies a segment; see {@link #readSegment} and {@link #appendSegment}. Returns its new
   * reference.
   *
   * @param fromPipeline the pipeline of its owner in the original
   */
  public static native byte[] copySegment(
      long manager,
      long stored,
      byte[] reference,
      String fromPipeline,
      String pipeline,
      String operator,
      String region,
      String store,
      long created,
      int kind,
      long entries);

  /** Writes a segment of a kind of rust/core/FORMAT.md; returns its reference. */
  public static native byte[] appendSegment(
      long manager,
      String pipeline,
      String operator,
      String region,
      String store,
      long created,
      int kind,
      long entries,
      byte[] payload);

  /**
   * Copies a table of another folder as one segment. Returns the id of the new commit, the number
   * of keys, and references of its segments in hexadecimal.
   *
   * @param id of its commit
   */
  public static native String[] copyTable(
      long manager,
      long stored,
      String id,
      String fromPipeline,
      String pipeline,
      String operator,
      String region,
      String store,
      long created);

  /** All rows of a table, for {@code holdfast._core.decode_rows}. */
  public static native byte[] readTable(
      long stored, String id, String pipeline, String operator, String region, String store);

  /** Makes all writes for a checkpoint survive a machine crash. */
  public static native void persistSegments(long manager, long checkpoint);

  /** Begins the clean-up of a pipeline's folder. The terms of all files in it count as known. */
  public static native long openOrphans(
      String segments,
      HadoopFolder segmentFiles,
      String metadata,
      HadoopFolder metadataFiles,
      String pipeline);

  /**
   * Deletes files of managers that are gone. Returns the work done, or an empty text, and the names
   * of files that waste too much.
   */
  public static native String[] reclaimOrphans(
      long orphans, long[] retained, long[] liveTerms, long newestTerm);

  public static native void closeOrphans(long orphans);

  private static void load() {
    String os = System.getProperty("os.name").toLowerCase(Locale.ROOT);
    String arch = System.getProperty("os.arch");
    String platform = os + "-" + (arch.equals("amd64") ? "x86_64" : arch);
    String resource = "/native/" + platform + "/libholdfast_jni.so";
    try (InputStream in = Native.class.getResourceAsStream(resource)) {
      if (in == null) {
        throw new HoldfastException(
            String.format(
                "The native jar of Holdfast is missing, or holds no library for %s (no resource"
                    + " %s). Put both jars that 'holdfast jar' prints into spark.jars, of a wheel"
                    + " built for this platform; 'holdfast doctor' looks whether they are.",
                platform, resource));
      }
      // A JVM refuses to load one file for two class loaders, so each gets a copy.
      Path file = Files.createTempFile("libholdfast_jni-", ".so");
      try {
        Files.copy(in, file, StandardCopyOption.REPLACE_EXISTING);
        System.load(file.toAbsolutePath().toString());
      } finally {
        // The file needs no name after it is mapped.
        Files.deleteIfExists(file);
      }
    } catch (IOException | UnsatisfiedLinkError e) {
      throw new HoldfastException(
          String.format(
              "The Holdfast native library could not be loaded from %s by way of %s: %s. The"
                  + " folder must be writable and allow execution (set java.io.tmpdir); 'holdfast"
                  + " doctor' tries it.",
              resource, System.getProperty("java.io.tmpdir"), e.getMessage()),
          e);
    }
  }
}
