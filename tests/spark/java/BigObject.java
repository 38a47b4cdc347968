package io.holdfast.spark.merged;

import io.holdfast.spark.Native;
import java.io.IOException;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.util.Arrays;
import java.util.Map;
import java.util.TreeMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.fs.statistics.IOStatistics;
import org.apache.hadoop.fs.statistics.IOStatisticsSupport;
import org.apache.spark.unsafe.Platform;

/**
 * Writes one object that is much larger than the process's memory limit, as an executor does.
 * Commits of a state store overwrite the same rows in one open file.
 *
 * <p>Prints lines of a name and a number; names of S3A's counters end with {@code .open} before the
 * end of the object.
 */
public final class BigObject {
  private static final int KEYS = 4096;
  private static final int VALUE_BYTES = 1024;
  private static final long COMMIT_BYTES = (long) KEYS * VALUE_BYTES;
  /** After these commits, all memory that is taken only once is taken. */
  private static final int WARM = 8;

  private static final long WAIT_NANOS = 60_000_000_000L;
  /** Counted when a part was put; the counters of a stream are added up at its end only. */
  private static final String PARTS = "object_put_request_completed";

  private final Path folder;
  private final FileSystem fileSystem;
  private final HadoopFolder files;

  private BigObject(String uri, Configuration configuration) throws IOException {
    folder = new Path(uri);
    fileSystem = folder.getFileSystem(configuration);
    files = new HadoopFolder(folder, configuration);
  }

  private long openManager(long term) {
    long neverFull = Long.MAX_VALUE;
    return Native.openFolder(
        folder.toString(), files, term, neverFull, Compression.NONE.code, false);
  }

  private static long openStore(long manager) {
    return Native.openStore(manager, "0", "0", "default", false, 0, false);
  }

  private static byte[] value(int commit, int key) {
    byte[] bytes = new byte[VALUE_BYTES];
    byte[] name = (commit + " of " + key).getBytes(StandardCharsets.UTF_8);
    System.arraycopy(name, 0, bytes, 0, name.length);
    return bytes;
  }

  /** Returns the id of the commit. */
  private static String commit(long store, int number, long memory) {
    Native.begin(store);
    for (int key = 0; key < KEYS; key++) {
      Platform.putInt(null, memory, key);
      Platform.copyMemory(
          value(number, key), Platform.BYTE_ARRAY_OFFSET, null, memory + 4, VALUE_BYTES);
      Native.put(store, Native.ONLY_FAMILY, memory, 4, memory + 4, VALUE_BYTES);
    }
    return Native.commit(store);
  }

  private void checkRows(String id, int commits, long memory) {
    long manager = openManager(0);
    long store = openStore(manager);
    Native.load(store, commits, id);
    byte[] found = new byte[VALUE_BYTES];
    for (int key = 0; key < KEYS; key++) {
      Platform.putInt(null, memory, key);
      int length = Native.get(store, Native.ONLY_FAMILY, memory, 4, memory + 4, VALUE_BYTES);
      Platform.copyMemory(null, memory + 4, found, Platform.BYTE_ARRAY_OFFSET, VALUE_BYTES);
      if (length != VALUE_BYTES || !Arrays.equals(found, value(commits, key))) {
        throw new AssertionError("row " + key + " has " + length + " bytes, or others");
      }
    }
    print("rows", Native.storeStats(store).keys());
    Native.closeStore(store);
    Native.closeFolder(manager);
  }

  private static void print(String name, long number) {
    System.out.println(name + ' ' + number);
  }

  /** The process's largest memory so far, with everything in it. */
  private static long peakBytes() throws IOException {
    for (String line : Files.readAllLines(java.nio.file.Path.of("/proc/self/status"))) {
      if (line.startsWith("VmHWM:")) {
        return Long.parseLong(line.replaceAll("\\D", "")) << 10;
      }
    }
    throw new AssertionError("no VmHWM");
  }

  private Map<String, Long> counters() {
    IOStatistics statistics = IOStatisticsSupport.retrieveIOStatistics(fileSystem);
    return statistics == null ? Map.of() : statistics.counters();
  }

  /** S3A uploads full parts on threads of its own. */
  private void awaitParts(long parts) throws InterruptedException {
    long deadline = System.nanoTime() + WAIT_NANOS;
    while (counters().getOrDefault(PARTS, 0L) < parts && System.nanoTime() < deadline) {
      Thread.sleep(10);
    }
  }

  private long pendingUploads() throws ReflectiveOperationException, IOException {
    // By reflection, because the tests compile without S3A.
    Method list = fileSystem.getClass().getMethod("listUploads", String.class);
    RemoteIterator<?> uploads = (RemoteIterator<?>) list.invoke(fileSystem, (Object) null);
    long pending = 0;
    for (; uploads.hasNext(); uploads.next()) {
      pending++;
    }
    return pending;
  }

  private void report(String when) throws ReflectiveOperationException, IOException {
    new TreeMap<>(counters())
        .forEach(
            (name, count) -> {
              if (name.contains("multipart") || name.startsWith("object_put")) {
                print(name + when, count);
              }
            });
    print("pending_uploads" + when, pendingUploads());
    print("objects" + when, files.list().lines().count());
    print(
        "object_bytes" + when,
        files.list().lines().mapToLong(line -> Long.parseLong(line.split(" ")[0])).sum());
  }

  private void run(int commits, boolean seal, long partBytes) throws Exception {
    long memory = Platform.allocateMemory(4 + VALUE_BYTES);
    long manager = openManager(1);
    long store = openStore(manager);
    Native.load(store, 0, null);
    String id = null;
    for (int number = 1; number <= commits; number++) {
      id = commit(store, number, memory);
      if (number == WARM) {
        print("peak_bytes.early", peakBytes());
      }
    }
    awaitParts(commits * COMMIT_BYTES / partBytes);
    print("peak_bytes.late", peakBytes());
    print("state_bytes", commits * COMMIT_BYTES);
    report(".open");
    Native.closeStore(store);
    if (seal) {
      long number = Native.referencedEnds(new String[] {id})[0].number();
      Native.syncFiles(manager, new long[] {number});
      checkRows(id, commits, memory);
    }
    // Files that are not sealed by now are abandoned.
    Native.closeFolder(manager);
    report("");
  }

  /**
   * @param args URI of an empty folder, number of commits, {@code seal} or {@code abandon}, then
   *     settings as key=value
   */
  public static void main(String[] args) throws Exception {
    Configuration configuration = new Configuration();
    for (int i = 3; i < args.length; i++) {
      String[] setting = args[i].split("=", 2);
      configuration.set(setting[0], setting[1]);
    }
    long partBytes = configuration.getLongBytes("fs.s3a.multipart.size", 0);
    BigObject object = new BigObject(args[0], configuration);
    object.run(Integer.parseInt(args[1]), args[2].equals("seal"), partBytes);
    System.exit(0);
  }
}
