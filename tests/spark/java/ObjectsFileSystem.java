import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.net.URI;
import java.nio.file.FileAlreadyExistsException;
import java.nio.file.Files;
import java.nio.file.StandardCopyOption;
import java.util.Arrays;
import java.util.Locale;
import org.apache.hadoop.fs.Abortable;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FSDataOutputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.StreamCapabilities;
import org.apache.hadoop.fs.permission.FsPermission;
import org.apache.hadoop.util.Progressable;

/**
 * An object store, {@code objects:/local/path}: an object appears whole when its stream is closed,
 * takes a free name unless it overwrites, and is neither appended to nor renamed.
 */
public final class ObjectsFileSystem extends RawLocalFileSystem {
  private static final URI NAME = URI.create("objects:///");

  @Override
  public URI getUri() {
    return NAME;
  }

  @Override
  public String getScheme() {
    return NAME.getScheme();
  }

  @Override
  public boolean hasPathCapability(Path path, String capability) {
    return CommonPathCapabilities.ABORTABLE_STREAM.equals(capability.toLowerCase(Locale.ROOT));
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
    java.nio.file.Path target = pathToFile(path).toPath();
    if (!overwrite) {
      refuseTaken(target);
    }
    return new FSDataOutputStream(new ObjectUpload(target, overwrite), null);
  }

  /** Objects have no permissions, which the files below have under another URI. */
  @Override
  public FileStatus[] listStatus(Path path) throws IOException {
    return Arrays.stream(super.listStatus(path))
        .map(
            file ->
                new FileStatus(
                    file.getLen(),
                    file.isDirectory(),
                    1,
                    file.getBlockSize(),
                    file.getModificationTime(),
                    file.getPath()))
        .toArray(FileStatus[]::new);
  }

  @Override
  public FSDataOutputStream append(Path path, int bufferSize, Progressable progress) {
    throw new UnsupportedOperationException("append to " + path);
  }

  @Override
  public boolean rename(Path from, Path to) {
    throw new UnsupportedOperationException("rename of " + from);
  }

  private static void refuseTaken(java.nio.file.Path target) throws IOException {
    if (Files.exists(target)) {
      throw new org.apache.hadoop.fs.FileAlreadyExistsException(target + " exists");
    }
  }

  private static final class ObjectUpload extends ByteArrayOutputStream
      implements Abortable, StreamCapabilities {
    private final java.nio.file.Path target;
    private final boolean overwrites;
    private boolean ended;

    ObjectUpload(java.nio.file.Path target, boolean overwrites) {
      this.target = target;
      this.overwrites = overwrites;
    }

    @Override
    public boolean hasCapability(String capability) {
      return StreamCapabilities.ABORTABLE_STREAM.equals(capability);
    }

    @Override
    public AbortableResult abort() {
      boolean before = ended;
      ended = true;
      return new AbortableResult() {
        @Override
        public boolean alreadyClosed() {
          return before;
        }

        @Override
        public IOException anyCleanupException() {
          return null;
        }
      };
    }

    @Override
    public void close() throws IOException {
      if (ended) {
        return;
      }
      ended = true;
      Files.createDirectories(target.getParent());
      java.nio.file.Path upload = Files.createTempFile("upload-", ".object");
      try {
        Files.write(upload, toByteArray());
        if (overwrites) {
          Files.move(upload, target, StandardCopyOption.ATOMIC_MOVE);
          return;
        }
        // One step, which fails if another writer has taken the name.
        Files.createLink(target, upload);
      } catch (FileAlreadyExistsException e) {
        throw new org.apache.hadoop.fs.FileAlreadyExistsException(target + " exists");
      } finally {
        Files.deleteIfExists(upload);
      }
    }
  }
}
