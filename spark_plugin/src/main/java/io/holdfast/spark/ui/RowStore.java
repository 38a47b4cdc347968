package io.holdfast.spark.ui;

import io.holdfast.spark.ui.UiEvents.FilesCounted;
import io.holdfast.spark.ui.UiRows.Files;
import io.holdfast.spark.ui.UiRows.Start;
import java.util.ArrayList;
import java.util.Comparator;
import java.util.List;
import java.util.NoSuchElementException;
import java.util.Optional;
import org.apache.spark.util.kvstore.KVStore;
import org.apache.spark.util.kvstore.KVStoreIterator;
import org.apache.spark.util.kvstore.KVStoreView;

/** Reads the rows of the tab in Spark's store of the UI. */
final class RowStore {
  private final KVStore store;

  RowStore(KVStore store) {
    this.store = store;
  }

  boolean isEmpty() throws Exception {
    return store.count(Start.class) == 0;
  }

  /** Starts, the newest first. */
  List<Start> starts() throws Exception {
    List<Start> found = all(store.view(Start.class));
    found.sort(Comparator.comparingLong(Start::startedMs).reversed());
    return found;
  }

  Optional<Start> start(String run) throws Exception {
    try {
      return Optional.of(store.read(Start.class, run));
    } catch (NoSuchElementException none) {
      return Optional.empty();
    }
  }

  /** In the order of their numbers. */
  <T> List<T> of(Class<T> type, String run) throws Exception {
    return all(store.view(type).first(run + "/").last(run + "0"));
  }

  /** By their batches. */
  List<FilesCounted> cleanUps(String run) throws Exception {
    return of(Files.class, run).stream().map(Files::counted).toList();
  }

  private static <T> List<T> all(KVStoreView<T> view) throws Exception {
    List<T> found = new ArrayList<>();
    try (KVStoreIterator<T> rows = view.closeableIterator()) {
      rows.forEachRemaining(found::add);
    }
    return found;
  }
}
