package io.holdfast.spark.storage;

import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.file.AccessDeniedException;
import java.nio.file.NoSuchFileException;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.PathAccessDeniedException;
import org.apache.hadoop.security.AccessControlException;

/**
 * Turns errors of all file systems into the few classes that callers tell apart, and no subclasses:
 * {@link FileNotFoundException}, {@link FileAlreadyExistsException}, {@link
 * AccessControlException}, {@link IOException}.
 */
public final class FileErrors {
  private static final int MORE_ATTEMPTS = 2;

  private FileErrors() {}

  @FunctionalInterface
  public interface Step<T> {
    T run() throws IOException;
  }

  @FunctionalInterface
  public interface Action {
    void run() throws IOException;
  }

  /** Runs a step. Its errors begin with {@code what}, such as "cannot read hdfs://host/file". */
  public static <T> T explained(String what, Step<T> step) throws IOException {
    try {
      return step.run();
    } catch (UncheckedIOException e) {
      throw explain(what, e.getCause());
    } catch (IOException e) {
      throw explain(what, e);
    }
  }

  public static void explained(String what, Action action) throws IOException {
    explained(
        what,
        () -> {
          action.run();
          return null;
        });
  }

  /**
   * Repeats a step after failures that S3A's client does not repeat itself. The client takes an
   * answer that breaks off within its header for a whole one, and then misses an ETag or a length.
   */
  public static <T> T repeated(Step<T> step) throws IOException {
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

  /** Cleans up after a failure, which notes if that fails as well. */
  public static void suppressed(Exception failure, Action cleanUp) {
    try {
      cleanUp.run();
    } catch (IOException | RuntimeException suppressed) {
      failure.addSuppressed(suppressed);
    }
  }

  private static IOException explain(String what, IOException error) {
    String text = what + ": " + said(error);
    IOException explained;
    if (error instanceof FileNotFoundException || error instanceof NoSuchFileException) {
      explained = new FileNotFoundException(text);
    } else if (error instanceof FileAlreadyExistsException
        || error instanceof java.nio.file.FileAlreadyExistsException) {
      explained = new FileAlreadyExistsException(text);
    } else if (isAccessDenied(error)) {
      explained = new AccessControlException(text);
    } else {
      explained = new IOException(text);
    }
    explained.initCause(error);
    return explained;
  }

  private static boolean isAccessDenied(IOException error) {
    return error instanceof AccessControlException
        || error instanceof PathAccessDeniedException
        // S3A has a subclass for missing buckets.
        || error.getClass() == AccessDeniedException.class;
  }

  /** The text for people, with the name of a file system's own class, which says the most. */
  private static String said(IOException error) {
    boolean plain =
        error.getMessage() != null
            && (error.getClass() == IOException.class
                || error.getClass() == FileNotFoundException.class
                || error.getClass() == FileAlreadyExistsException.class);
    return plain ? error.getMessage() : error.toString();
  }
}
