package io.holdfast.spark.driver;

import java.util.ArrayList;
import java.util.Collection;
import java.util.Collections;
import java.util.Comparator;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Objects;
import java.util.Set;

/** Decides which partitions of a query move to other executors. */
public final class Balance {
  /** A partition counts as much at least: its task has a cost even with little state. */
  static final long LEAST_BYTES = 1 << 20;

  /** Executors may differ from their mean by this share of it. A move costs an open. */
  static final double TOLERANCE = 0.25;

  private static final Comparator<Part> LARGEST =
      Comparator.comparingLong(Part::weight).reversed().thenComparing(Part::partition);

  private Balance() {}

  /** An executor's stores of one partition. They move together, because one task uses them. */
  public record Part(int partition, String executor, long bytes) {
    private long weight() {
      return Math.max(LEAST_BYTES, bytes);
    }
  }

  public record Relocation(Part part, String to) {}

  /** Evens out the bytes of a query's state per executor. Parts on other executors move first. */
  public static List<Relocation> moves(Collection<Part> parts, Set<String> executors, int most) {
    Map<String, List<Part>> held = new HashMap<>();
    Map<String, Long> loads = new HashMap<>();
    executors.forEach(executor -> loads.put(executor, 0L));
    for (Part part : parts) {
      held.computeIfAbsent(part.executor(), any -> new ArrayList<>()).add(part);
      loads.computeIfPresent(part.executor(), (any, load) -> load + part.weight());
    }
    Comparator<String> byLoad = Comparator.<String>comparingLong(loads::get).thenComparing(it -> it);
    List<Relocation> moves = new ArrayList<>();
    List<Part> elsewhere =
        parts.stream().filter(part -> !loads.containsKey(part.executor())).sorted(LARGEST).toList();
    for (Part part : elsewhere.subList(0, Math.min(most, elsewhere.size()))) {
      String to = Collections.min(executors, byLoad);
      moves.add(new Relocation(part, to));
      loads.merge(to, part.weight(), Long::sum);
    }
    boolean goesOn = !isEven(loads.values());
    while (goesOn && moves.size() < most) {
      List<String> ordered = executors.stream().sorted(byLoad.reversed()).toList();
      String to = ordered.get(ordered.size() - 1);
      Relocation move =
          ordered.stream()
              .map(
                  from ->
                      best(
                          held.getOrDefault(from, List.of()), loads.get(from) - loads.get(to), to))
              .filter(Objects::nonNull)
              .findFirst()
              .orElse(null);
      goesOn = move != null;
      if (goesOn) {
        Part part = move.part();
        moves.add(move);
        // Each moves only once: the executor that receives it does not have it yet.
        held.get(part.executor()).remove(part);
        loads.merge(part.executor(), -part.weight(), Long::sum);
        loads.merge(to, part.weight(), Long::sum);
      }
    }
    return moves;
  }

  private static boolean isEven(Collection<Long> loads) {
    double mean = loads.stream().mapToLong(load -> load).average().orElse(0);
    return loads.stream().allMatch(load -> Math.abs(load - mean) <= TOLERANCE * mean);
  }

  /** The move that leaves the least difference between two executors; null if none lessens it. */
  private static Relocation best(List<Part> parts, long gap, String to) {
    return parts.stream()
        .filter(part -> part.weight() < gap)
        .min(
            Comparator.<Part>comparingLong(part -> Math.abs(gap - 2 * part.weight()))
                .thenComparing(Part::partition))
        .map(part -> new Relocation(part, to))
        .orElse(null);
  }
}
