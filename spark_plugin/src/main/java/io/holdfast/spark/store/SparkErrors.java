package io.holdfast.spark.store;

import io.holdfast.spark.MissingStateException;
import io.holdfast.spark.NewerFormatException;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.minor.SparkCalls;
import org.apache.spark.sql.errors.QueryExecutionErrors$;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreErrors$;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;

/** Exceptions of Spark's providers: callers check the conditions. Holdfast's are the causes. */
public final class SparkErrors {
  private static final String NO_FAMILIES = "multiple column families is disabled in Holdfast";

  private SparkErrors() {}

  /** Spark's errors may be checked exceptions, which Scala's methods do not declare. */
  @SuppressWarnings("unchecked")
  private static <E extends Throwable> RuntimeException raise(Throwable error) throws E {
    throw (E) error;
  }

  public static void requireVersion(long version) {
    if (version < 0) {
      throw raise(QueryExecutionErrors$.MODULE$.unexpectedStateStoreVersion(version));
    }
  }

  public static RuntimeException cannotLoad(StateStoreId id, Exception cause) {
    boolean notThere =
        cause instanceof MissingStateException
            || cause instanceof UnsupportedStateException
            || cause instanceof IllegalArgumentException;
    // Spark's text advises a new checkpoint, which would lose state that a newer Holdfast reads.
    if (notThere && !(cause instanceof NewerFormatException)) {
      throw raise(
          QueryExecutionErrors$.MODULE$.failedToReadStreamingStateFileError(
              id.storeCheckpointLocation(), cause));
    }
    throw raise(SparkCalls.cannotLoad(cause));
  }

  static RuntimeException cannotCommit(Object store, Exception cause) {
    throw raise(
        QueryExecutionErrors$.MODULE$.failedToCommitStateFileError(store.toString(), cause));
  }

  /** Spark throws this exception, and the exception of {@link #require}, for wrong arguments. */
  static void verify(boolean condition, String message) {
    if (!condition) {
      throw new IllegalStateException(message);
    }
  }

  public static void require(boolean condition, String message) {
    if (!condition) {
      throw new IllegalArgumentException("requirement failed: " + message);
    }
  }

  public static RuntimeException missingFamily(String operation, String name) {
    return StateStoreErrors$.MODULE$.unsupportedOperationOnMissingColumnFamily(operation, name);
  }

  public static void requireFamilyName(String operation, String name, boolean columns) {
    if (name.equals(StateStore.DEFAULT_COL_FAMILY_NAME())) {
      return;
    }
    requireColumns(operation, columns);
    if (isNoName(name)) {
      throw StateStoreErrors$.MODULE$.cannotUseColumnFamilyWithInvalidName(operation, name);
    }
  }

  static void requireNewFamilyName(
      String operation, String name, boolean columns, boolean internal) {
    requireColumns(operation, columns);
    boolean isDefault = name.equals(StateStore.DEFAULT_COL_FAMILY_NAME());
    if (isNoName(name) || (isDefault && !internal)) {
      throw StateStoreErrors$.MODULE$.cannotUseColumnFamilyWithInvalidName(operation, name);
    }
    if (!internal && name.charAt(0) == '$') {
      throw StateStoreErrors$.MODULE$.cannotCreateColumnFamilyWithReservedChars(name);
    }
  }

  private static void requireColumns(String operation, boolean columns) {
    if (!columns) {
      throw StateStoreErrors$.MODULE$.unsupportedOperationException(operation, NO_FAMILIES);
    }
  }

  private static boolean isNoName(String name) {
    return name.isEmpty() || !name.trim().equals(name);
  }
}
