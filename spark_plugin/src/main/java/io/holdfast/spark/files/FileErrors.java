package io.holdfast.spark.files;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.NoSuchFileException;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.PathAccessDeniedException;
import org.apache.hadoop.security.AccessControlException;

/**
 * Errors of all file systems in the few kinds that callers tell apart, each exactly of this class:
 * {@link FileNotFoundException}, {@link FileAlreadyExistsException}, {@link AccessControlException},
 * {@link IOException}.
 */
public final class FileErrors {
  private static final int MORE_ATTEMPTS = 2;

  private FileErrors() {}

  /** What may fail. */
  @FunctionalInterface
  public interface Step<T> {
    T run() throws IOException;
  }

  /**
   * Runs a step; its errors say what failed.
   *
   * @param what such as "cannot read hdfs://host/file"
   */
  public static <T> T explained(String what, Step<T> step) throws IOException {
    try {
      return step.run();
    } catch (UncheckedIOException e) {
      throw explain(what, e.getCause());
    } catch (IOException e) {
      throw explain(what, e);
    }
  }

  /**
   * Runs a step that may be run any number of times. An answer of an object store that breaks off within its
   * header is whole to S3A's client, which throws what it does not throw else where an ETag or a length is
   * missing; all other failures it repeats itself.
   */
  static <T> T repeated(Step<T> step) throws IOException {
    for (int left = MORE_ATTEMPTS; ; left--) {
      try {
        return step.run();
      } catch (IllegalArgumentException | NullPointerException e) {
        if (left == 0) {
          throw new IOException("an answer of the store, or what it holds, is not whole: " + e, e);
        }
      }
    }
  }

  private static IOException explain(String what, IOException error) {
    IOException explained;
    if (error instanceof FileNotFoundException || error instanceof NoSuchFileException) {
      explained = new FileNotFoundException(what + ": " + said(error));
    } else if (error instanceof FileAlreadyExistsException
        || error instanceof java.nio.file.FileAlreadyExistsException) {
      explained = new FileAlreadyExistsException(what + ": " + said(error));
    } else if (isAccessDenied(error)) {
      explained = new AccessControlException(what + ": " + said(error));
    } else {
      explained = new IOException(what + ": " + said(error));
    }
    explained.initCause(error);
    return explained;
  }

  private static boolean isAccessDenied(IOException error) {
    return error instanceof AccessControlException
        || error instanceof PathAccessDeniedException
        // S3A has a subclass for buckets that are not there.
        || error.getClass() == AccessDeniedException.class;
  }

  /** The text for people; of a file system's own classes with the name, which says the most. */
  private static String said(IOException error) {
    boolean plain =
        error.getMessage() != null
            && (error.getClass() == IOException.class
                || error.getClass() == FileNotFoundException.class
                || error.getClass() == FileAlreadyExistsException.class);
    return plain ? error.getMessage() : error.toString();
  }
}
