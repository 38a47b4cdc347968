package io.holdfast.spark.files;

import io.holdfast.spark.minor.AtomicStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.Optional;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;

/**
 * What this process wrote last into one of Spark's logs. Spark asks whether an entry is there before
 * it writes it, and reads back what it has just written. On HDFS and object stores these are half of
 * the requests that a batch costs.
 */
public final class RecentEntries {
  /** {@code CompactibleFileStreamLog} has entries that repeat those before them. */
  private static final Pattern NAME = Pattern.compile("(\\d{1,18})(\\.compact)?");

  /** Of all entries of a log that are kept; most have hundreds of bytes. */
  private static final int MAX_BYTES = 1 << 20;

  private final Map<Path, byte[]> kept = new LinkedHashMap<>();
  private int keptBytes;
  private Path folder;
  private long newest = -1;

  /** Whether an entry of a log is named like this. */
  public static boolean isEntry(Path path) {
    return NAME.matcher(path.getName()).matches();
  }

  /**
   * Whether an entry comes right behind the newest one, which was written here. If it is there all the
   * same, another application wrote it.
   */
  public synchronized boolean isNext(Path path) {
    return newest >= 0
        && isEntry(path)
        && number(path) == newest + 1
        && path.getParent().equals(folder);
  }

  public synchronized boolean has(Path path) {
    return kept.containsKey(path);
  }

  /** Reads an entry; empty if it is not kept. */
  public synchronized Optional<FSDataInputStream> open(Path path) {
    return Optional.ofNullable(kept.get(path))
        .map(content -> new FSDataInputStream(new BytesInput(content)));
  }

  /** An entry that is kept when it is closed. */
  public AtomicStream keeping(AtomicStream out, Path path) {
    return new KeptStream(out, path, new Captured());
  }

  /** Forgets an entry that is deleted, or of which it is not known what became of it. */
  public synchronized void forget(Path path) {
    forgetContent(path);
    if (isEntry(path) && number(path) >= newest) {
      newest = -1;
    }
  }

  private synchronized void keep(Path path, Optional<byte[]> content) {
    folder = path.getParent();
    newest = number(path);
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

  private static long number(Path path) {
    Matcher name = NAME.matcher(path.getName());
    if (!name.matches()) {
      throw new IllegalArgumentException(path + " is no entry of a log");
    }
    return Long.parseLong(name.group(1));
  }

  /** What is written, unless it is too much to be kept. */
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

  private final class KeptStream extends AtomicStream {
    private final AtomicStream out;
    private final Path path;
    private final Captured written;
    private boolean ended;

    KeptStream(AtomicStream out, Path path, Captured written) {
      super(new Tee(out, written));
      this.out = out;
      this.path = path;
      this.written = written;
    }

    @Override
    public void close() throws IOException {
      if (ended) {
        return;
      }
      ended = true;
      try {
        out.close();
      } catch (IOException | RuntimeException e) {
        forget(path);
        throw e;
      }
      keep(path, written.content());
    }

    @Override
    public void cancel() {
      ended = true;
      out.cancel();
    }
  }
}
