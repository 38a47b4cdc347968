package io.holdfast.spark.storage;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.net.URI;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FSDataOutputStreamBuilder;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * A file on an object store, which appears whole when it is closed, and never if it is cancelled.
 * Spark renames a temporary file, but there that is a copy, and two drivers could both believe that
 * they published.
 */
public final class NewObject extends AtomicStream {
  /** Option and capability since Hadoop 3.4.2. */
  private static final String CONDITIONAL = "fs.option.create.conditional.overwrite";

  /** Creates without a look at the name. Otherwise S3A looks twice, for a file and for a folder. */
  private static final String S3A_NO_LOOK = "fs.s3a.create.performance";

  /** Metadata of the object: the stream that made it. */
  private static final String WRITER = "holdfast-writer";

  /** S3A's names for metadata of a new object, and of an object that it finds. */
  private static final String S3A_NEW_METADATA = "fs.s3a.create.header." + WRITER;

  private static final String S3A_METADATA = "header." + WRITER;

  private static final Logger LOG = LoggerFactory.getLogger(NewObject.class);

  /** By file system, whether its store refuses to create an object that exists. */
  private static final Map<URI, Boolean> REFUSING = new HashMap<>();

  private final FileSystem fileSystem;
  private final Path path;
  private final FSDataOutputStream out;

  /** The writer in the object's metadata; null if the store does not decide who was first. */
  private final String writer;

  private NewObject(FileSystem fileSystem, Path path, FSDataOutputStream out, String writer) {
    super(out);
    this.fileSystem = fileSystem;
    this.path = path;
    this.out = out;
    this.writer = writer;
  }

  /**
   * Returns true if the store refuses a taken name when the file is closed, and no earlier.
   * Hadoop's client asks every store for that, but a store that cannot refuse silently replaces the
   * object. So this tries it once.
   */
  public static boolean looksAtClose(FileSystem fileSystem, Path path) throws IOException {
    if (!fileSystem.hasPathCapability(path, CONDITIONAL)) {
      return false;
    }
    synchronized (REFUSING) {
      Boolean known = REFUSING.get(fileSystem.getUri());
      if (known == null) {
        known = refusesTaken(fileSystem, path.getParent());
        REFUSING.put(fileSystem.getUri(), known);
      }
      return known;
    }
  }

  private static boolean refusesTaken(FileSystem fileSystem, Path folder) throws IOException {
    Path tried = new Path(folder, "." + UUID.randomUUID() + ".tmp");
    createConditionally(fileSystem, tried).close();
    try {
      createConditionally(fileSystem, tried).close();
    } catch (FileAlreadyExistsException refused) {
      return true;
    } finally {
      discard(fileSystem, tried);
    }
    LOG.warn(
        "{} replaces an object although it is asked to create a new one (If-None-Match: *). Holdfast"
            + " asks whether there is one before it creates one, but two applications that write to one"
            + " checkpoint at the same moment may both find none",
        fileSystem.getUri());
    return false;
  }

  private static void discard(FileSystem fileSystem, Path tried) {
    try {
      ObjectStores.delete(fileSystem, List.of(tried));
    } catch (IOException e) {
      LOG.warn("{} stays, which is empty: it cannot be deleted", tried, e);
    }
  }

  public static NewObject create(FileSystem fileSystem, Path path, boolean overwrite)
      throws IOException {
    if (!overwrite && looksAtClose(fileSystem, path)) {
      return createConditionally(fileSystem, path);
    }
    FSDataOutputStreamBuilder<?, ?> builder = fileSystem.createFile(path).recursive();
    if (overwrite) {
      builder.overwrite(true).opt(S3A_NO_LOOK, true);
    } else {
      builder.overwrite(false);
    }
    return new NewObject(fileSystem, path, builder.build(), null);
  }

  /** A file whose store decides at close which of two writers was first. */
  private static NewObject createConditionally(FileSystem fileSystem, Path path)
      throws IOException {
    String writer = UUID.randomUUID().toString();
    FSDataOutputStreamBuilder<?, ?> builder = fileSystem.createFile(path).recursive();
    builder.must(CONDITIONAL, true).opt(S3A_NEW_METADATA, writer).opt(S3A_NO_LOOK, true);
    return new NewObject(fileSystem, path, builder.build(), writer);
  }

  /** Throws {@link FileAlreadyExistsException} if another writer was first; Spark explains it. */
  @Override
  protected void publish() throws IOException {
    try {
      out.close();
    } catch (IOException e) {
      if (writer == null) {
        throw e;
      }
      settle(e);
    }
  }

  /**
   * A conditional create failed. Another writer took the name, or nothing was created, or the
   * object is this stream's own. After a lost answer the client asks again, and finds the name
   * taken.
   */
  private void settle(IOException failure) throws IOException {
    byte[] found;
    try {
      found = fileSystem.getXAttr(path, S3A_METADATA);
    } catch (FileNotFoundException absent) {
      throw failure;
    } catch (IOException | RuntimeException unknown) {
      failure.addSuppressed(unknown);
      throw failure;
    }
    if (!Arrays.equals(found, writer.getBytes(StandardCharsets.UTF_8))) {
      throw (IOException)
          new FileAlreadyExistsException(path + " was created by another writer").initCause(failure);
    }
  }

  @Override
  protected void discard() {
    out.abort();
  }
}
