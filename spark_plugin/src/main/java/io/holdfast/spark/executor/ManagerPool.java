package io.holdfast.spark.executor;

import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.function.Predicate;

/** The open managers of one kind, at most one per folder. The lock of its owner guards it. */
final class ManagerPool<M extends OpenManager> {
  private final Map<String, M> byFolder = new HashMap<>();

  /** The manager of a folder; null without one. */
  M of(String dir) {
    return byFolder.get(dir);
  }

  /** The manager that the driver means; null when it is closed, or another one has its place. */
  M find(String dir, long term) {
    M manager = byFolder.get(dir);
    return manager == null || manager.term != term ? null : manager;
  }

  Collection<M> all() {
    return byFolder.values();
  }

  /** Takes the place of the one that the folder had. */
  M put(M manager) {
    byFolder.put(manager.dir, manager);
    return manager;
  }

  void remove(M manager) {
    byFolder.remove(manager.dir, manager);
  }

  /** Takes out all that meet a condition, so that the caller may close them. */
  List<M> take(Predicate<M> condition) {
    List<M> taken = new ArrayList<>(byFolder.values());
    taken.removeIf(condition.negate());
    taken.forEach(this::remove);
    return taken;
  }
}
