import java.io.IOException;
import java.io.UncheckedIOException;
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RawLocalFileSystem;
import org.apache.spark.TaskContext;

/**
 * The local file system as {@code counted:/path}. Each file that a task opens becomes a line of the
 * file that {@code fs.counted.log} names.
 */
public final class CountedFileSystem extends RawLocalFileSystem {
  private static final URI NAME = URI.create("counted:///");

  @Override
  public URI getUri() {
    return NAME;
  }

  @Override
  public String getScheme() {
    return NAME.getScheme();
  }

  @Override
  public FSDataInputStream open(Path path, int bufferSize) throws IOException {
    if (TaskContext.get() != null) {
      log(path.toUri().getPath());
    }
    return super.open(path, bufferSize);
  }

  // One writer at a time: tasks share this object.
  private synchronized void log(String opened) {
    try {
      Files.writeString(
          java.nio.file.Path.of(getConf().get("fs.counted.log")),
          opened + "\n",
          StandardOpenOption.CREATE,
          StandardOpenOption.APPEND);
    } catch (IOException e) {
      throw new UncheckedIOException(e);
    }
  }
}
