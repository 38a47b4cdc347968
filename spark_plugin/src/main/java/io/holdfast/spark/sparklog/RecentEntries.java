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
 * of the requests of a batch.
 */
final class RecentEntries {
  /** Bound on all entries that are kept. Most have hundreds of bytes. */
  private static final int MAX_BYTES = 1 << 20;

  private final Map<Path, byte[]> kept = new LinkedHashMap<>();
  private int keptBytes;
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
    Captured copy = new Captured();
    return new AtomicStream(new TeeOutputStream(entry, copy)) {
      @Override
      protected void publish() throws IOException {
        try {
          entry.close();
        } catch (IOException | RuntimeException e) {
          forget(file.path());
          throw e;
        }
        keep(file, copy.content());
      }

      @Override
      protected void discard() {
        entry.cancel();
      }
    };
  }

  /** Forgets an entry that is deleted or that may not be complete. */
  synchronized void forget(Path path) {
    forgetContent(path);
    if (SparkFile.of(path).number() >= newest) {
      newest = -1;
    }
  }

  private synchronized void keep(SparkFile file, Optional<byte[]> content) {
    Path path = file.path();
    folder = path.getParent();
    newest = file.number();
    forgetContent(path);
    content.ifPresent(
        bytes -> {
          kept.put(path, bytes);
          keptBytes += bytes.length;
        });
    while (keptBytes > MAX_BYTES) {
      forgetContent(kept.keySet().iterator().next());
    }
  }

  private void forgetContent(Path path) {
    byte[] content = kept.remove(path);
    if (content != null) {
      keptBytes -= content.length;
    }
  }

  /** Captures the content of an entry, unless it is too large to keep. */
  private static final class Captured extends OutputStream {
    private ByteArrayOutputStream written = new ByteArrayOutputStream();

    @Override
    public void write(int b) {
      write(new byte[] {(byte) b}, 0, 1);
    }

    @Override
    public void write(byte[] bytes, int from, int length) {
      if (written != null && written.size() + length > MAX_BYTES) {
        written = null;
      }
      if (written != null) {
        written.write(bytes, from, length);
      }
    }

    Optional<byte[]> content() {
      return Optional.ofNullable(written).map(ByteArrayOutputStream::toByteArray);
    }
  }
}
