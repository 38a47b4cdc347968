package io.holdfast.bench;

import java.io.FilterOutputStream;
import java.io.IOException;
import java.io.InterruptedIOException;
import java.io.OutputStream;
import java.net.URI;
import java.util.EnumSet;
import java.util.Locale;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.CreateFlag;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * Local files behind {@code delayed:/path}, where creating one takes as long as the first round
 * trip to an object store, and nothing is appended to. Unlike Hadoop's local file system it forks
 * no shell to change permissions or to look for links.
 */
public final class DelayedFileSystem extends RawLocalFileSystem {
  /** Milliseconds by which every create is delayed. */
  public static final String DELAY_KEY = "fs.delayed.create.ms";

  static final URI NAME = URI.create("delayed:///");

  @Override
  public URI getUri() {
    return NAME;
  }

  @Override
  public String getScheme() {
    return NAME.getScheme();
  }

  @Override
  public boolean hasPathCapability(Path path, String capability) throws IOException {
    return !CommonPathCapabilities.FS_APPEND.equals(capability.toLowerCase(Locale.ROOT))
        && super.hasPathCapability(path, capability);
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) {
    throw new UnsupportedOperationException("append to " + path);
  }

  @Override
  public FSDataOutputStream create(
      Path path,
      FsPermission permission,
      boolean overwrite,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    delay();
    return whole(
        super.create(path, permission, overwrite, bufferSize, replication, blockSize, progress));
  }

  @Override
  public FSDataOutputStream createNonRecursive(
      Path path,
      FsPermission permission,
      EnumSet<CreateFlag> flags,
      int bufferSize,
      short replication,
      long blockSize,
      Progressable progress)
      throws IOException {
    delay();
    return whole(
        super.createNonRecursive(
            path, permission, flags, bufferSize, replication, blockSize, progress));
  }

  @Override
  public void setPermission(Path path, FsPermission permission) {
    // Object stores have none.
  }

  @Override
  public FileStatus getFileLinkStatus(Path path) throws IOException {
    return getFileStatus(path);
  }

  private void delay() throws IOException {
    try {
      Thread.sleep(getConf().getLong(DELAY_KEY, 0));
    } catch (InterruptedException e) {
      Thread.currentThread().interrupt();
      throw (IOException) new InterruptedIOException("interrupted in a create").initCause(e);
    }
  }

  /** A stream that promises nothing before it is closed. */
  private static FSDataOutputStream whole(FSDataOutputStream out) throws IOException {
    OutputStream plain =
        new FilterOutputStream(out) {
          @Override
          public void write(byte[] bytes, int from, int length) throws IOException {
            out.write(bytes, from, length);
          }
        };
    return new FSDataOutputStream(plain, null);
  }
}
