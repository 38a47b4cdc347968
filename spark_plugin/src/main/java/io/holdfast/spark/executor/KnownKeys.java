package io.holdfast.spark.executor;

import java.util.Collections;
import java.util.LinkedHashMap;
import java.util.Map;
import java.util.concurrent.ConcurrentHashMap;

/** The numbers of keys of the newest versions of an executor's stores. */
public final class KnownKeys {
  /** The newest version, and versions of two attempts that failed after their commits. */
  private static final int VERSIONS = 3;

  private final Map<String, Map<String, Long>> byStore = new ConcurrentHashMap<>();

  /** The id is null for version 0. */
  public void note(String store, String id, long keys) {
    of(store).put(id, keys);
  }

  /** 0 if the number is not known. */
  public long get(String store, String id) {
    return of(store).getOrDefault(id, 0L);
  }

  private Map<String, Long> of(String store) {
    return byStore.computeIfAbsent(
        store,
        any ->
            Collections.synchronizedMap(
                new LinkedHashMap<>(VERSIONS, 1, true) {
                  private static final long serialVersionUID = 1;

                  @Override
                  protected boolean removeEldestEntry(Map.Entry<String, Long> eldest) {
                    return size() > VERSIONS;
                  }
                }));
  }
}
