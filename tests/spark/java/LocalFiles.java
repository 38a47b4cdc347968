import java.io.IOException;
import java.net.URI;
import java.net.URISyntaxException;
import java.nio.file.Files;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.ChecksumFs;
import org.apache.hadoop.fs.DelegateToFileSystem;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FsConstants;
import org.apache.hadoop.fs.FsServerDefaults;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.hadoop.fs.permission.FsPermission;

/**
 * Hadoop's local file system, with calls of the JVM instead of processes where Hadoop's native
 * library is missing. Hadoop runs {@code chmod} for each new file and {@code readlink} for each
 * rename, a third of the processor time of small queries. All else is Hadoop's.
 */
public final class LocalFiles {
  private LocalFiles() {}

  private static final class Raw extends RawLocalFileSystem {
    @Override
    public void setPermission(Path path, FsPermission permission) throws IOException {
      Files.setAttribute(pathToFile(path).toPath(), "unix:mode", (int) permission.toShort());
    }

    @Override
    public FileStatus getFileLinkStatus(Path path) throws IOException {
      boolean isLink = Files.isSymbolicLink(pathToFile(path).toPath());
      return isLink ? super.getFileLinkStatus(path) : getFileStatus(path);
    }
  }

  /** The class for {@code fs.file.impl}. */
  public static final class OfFileSystem extends LocalFileSystem {
    /** Hadoop calls this constructor. */
    public OfFileSystem() {
      super(new Raw());
    }
  }

  /** The class for {@code fs.AbstractFileSystem.file.impl}, by which Spark writes its logs. */
  public static final class OfFileContext extends ChecksumFs {
    /** Hadoop calls this constructor. */
    public OfFileContext(URI uri, Configuration conf) throws IOException, URISyntaxException {
      super(new RawOfFileContext(conf));
    }
  }

  private static final class RawOfFileContext extends DelegateToFileSystem {
    RawOfFileContext(Configuration conf) throws IOException, URISyntaxException {
      super(FsConstants.LOCAL_FS_URI, new Raw(), conf, FsConstants.LOCAL_FS_URI.getScheme(), false);
    }

    @Override
    public int getUriDefaultPort() {
      return -1;
    }

    @Override
    public boolean isValidName(String name) {
      return true;
    }

    @Override
    public FsServerDefaults getServerDefaults(Path path) throws IOException {
      return fsImpl.getServerDefaults(path);
    }

    @Override
    @Deprecated
    public FsServerDefaults getServerDefaults() throws IOException {
      return fsImpl.getServerDefaults(new Path("/"));
    }
  }
}
