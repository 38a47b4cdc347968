package io.holdfast.spark.rpc;

import io.holdfast.spark.merged.FileId;
import java.io.Serializable;

/** A request of the driver to an executor; answered with an {@link ExecutorReply}. */
public sealed interface ExecutorRequest extends Serializable {
  String dir();

  /**
   * Files of the manager with this term must become durable.
   *
   * @param spreadMs each executor first waits for a random part of this
   */
  record SyncFiles(String dir, long term, long[] numbers, int spreadMs)
      implements ExecutorRequest {}

  /**
   * These files should go: stores write the parts that they need again, elsewhere.
   *
   * @param pinnedBytes no retained batch needs them; other bytes in the same file keep them
   */
  record WasteNotice(String dir, long pinnedBytes, FileId[] files) implements ExecutorRequest {}

  /** Asks for the open stores of the folder's manager, and their sizes. */
  record ListStores(String dir) implements ExecutorRequest {}

  /** A message for the manager with this term, by {@code holdfast._core.manager_message}. */
  record TellManager(String dir, long term, byte[] message) implements ExecutorRequest {}

  /** The manager with this term shall seal its files and be closed. */
  record CloseManager(String dir, long term) implements ExecutorRequest {}
}
