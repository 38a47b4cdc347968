package io.holdfast.spark.sparklog;

import io.holdfast.spark.storage.AtomicStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import org.apache.commons.io.output.TeeOutputStream;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;

/**
 * The last entries that this process wrote into one of Spark's logs. Spark asks whether an entry
 * exists before it writes it, and reads new entries back. On HDFS and object stores these are half
 * of the requests of a batch. Entries that repeat all earlier ones grow without bound, so their
 * content is not kept.
 */
final class RecentEntries {
  /** Spark reads the last two, and compaction those since the last compact entry, by default 9. */
  private static final int MAX_ENTRIES = 10;

  private final Map<Path, byte[]> kept = new LinkedHashMap<>();
  private Path folder;
  private long newest = -1;

  /** True for the entry after this process's newest. If it exists, another application wrote it. */
  synchronized boolean isNext(Path path) {
    return newest >= 0
        && SparkFile.of(path).number() == newest + 1
        && path.getParent().equals(folder);
  }

  synchronized boolean has(Path path) {
    return kept.containsKey(path);
  }

  /** Empty if the entry is not kept. */
  synchronized Optional<FSDataInputStream> open(Path path) {
    return Optional.ofNullable(kept.get(path))
        .map(content -> new FSDataInputStream(new BytesInput(content)));
  }

  /** Keeps the entry when it is closed. */
  AtomicStream keeping(AtomicStream entry, SparkFile file) {
    boolean repeats = file.isCompact();
    ByteArrayOutputStream copy = new ByteArrayOutputStream();
    OutputStream both = repeats ? entry : new TeeOutputStream(entry, copy);
    return new AtomicStream(both) {
      @Override
      protected void publish() throws IOException {
        try {
          entry.close();
        } catch (IOException | RuntimeException e) {
          forget(file.path());
          throw e;
        }
        keep(file, repeats ? Optional.empty() : Optional.of(copy.toByteArray()));
      }

      @Override
      protected void discard() {
        entry.cancel();
      }
    };
  }

  /** Forgets an entry that is deleted or that may not be complete. */
  synchronized void forget(Path path) {
    kept.remove(path);
    if (SparkFile.of(path).number() >= newest) {
      newest = -1;
    }
  }

  private synchronized void keep(SparkFile file, Optional<byte[]> content) {
    Path path = file.path();
    folder = path.getParent();
    newest = file.number();
    kept.remove(path);
    content.ifPresent(bytes -> kept.put(path, bytes));
    while (kept.size() > MAX_ENTRIES) {
      kept.remove(kept.keySet().iterator().next());
    }
  }
}
