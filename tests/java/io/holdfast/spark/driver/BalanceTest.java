package io.holdfast.spark.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.holdfast.spark.driver.Balance.Part;
import io.holdfast.spark.driver.Balance.Relocation;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;

class BalanceTest {
  private static final int MOST = 64;

  private static final Set<String> TWO = Set.of("a", "b");

  /** Partitions of an executor with so many MiB each. */
  private static List<Part> parts(String executor, int first, int... sizes) {
    return IntStream.range(0, sizes.length)
        .mapToObj(place -> new Part(first + place, executor, (long) sizes[place] << 20))
        .toList();
  }

  private static int[] equal(int number, int size) {
    return IntStream.generate(() -> size).limit(number).toArray();
  }

  private static List<Part> both(List<Part> some, List<Part> others) {
    return Stream.concat(some.stream(), others.stream()).toList();
  }

  /** The moves as partition, place before and place after. */
  private static List<String> moves(List<Part> parts, Set<String> executors, int most) {
    return Balance.moves(parts, executors, most).stream()
        .map(one -> one.part().partition() + " " + one.part().executor() + " " + one.to())
        .toList();
  }

  private static List<String> moves(List<Part> parts, Set<String> executors) {
    return moves(parts, executors, MOST);
  }

  @Test
  void anExecutorThatCameGetsItsShare() {
    List<Part> held = parts("a", 0, equal(10, 8));
    assertEquals(List.of("0 a b", "1 a b", "2 a b", "3 a b", "4 a b"), moves(held, TWO));
    assertEquals(8, moves(held, Set.of("a", "b", "c", "d", "e")).size());
  }

  @Test
  void oneAmongManyGetsItsShareWhereNoOtherHasMuchMoreThanTheMean() {
    List<Part> held =
        Stream.of("abcdefgh".split(""))
            .flatMap(name -> parts(name, 0, equal(9, 8)).stream())
            .toList();
    List<Relocation> moves =
        Balance.moves(held, Set.of("a", "b", "c", "d", "e", "f", "g", "h", "i"), MOST);
    assertEquals(8, moves.size());
    assertTrue(moves.stream().allMatch(move -> move.to().equals("i")));
  }

  @Test
  void bytesCountAndNotPartitions() {
    List<Part> held = both(parts("a", 0, 90), parts("a", 1, equal(9, 10)));
    assertEquals(List.of("0 a b"), moves(held, TWO));
  }

  @Test
  void partitionsWithoutMuchStateCountByTheirNumber() {
    List<Part> held =
        IntStream.range(0, 10).mapToObj(number -> new Part(number, "a", number)).toList();
    assertEquals(5, moves(held, TWO).size());
  }

  @Test
  void nothingMovesWhereStateIsAboutEven() {
    assertEquals(List.of(), moves(both(parts("a", 0, 10, 10, 10), parts("b", 0, 10, 10, 13)), TWO));
    assertEquals(List.of(), moves(both(parts("a", 0, 10, 10), parts("b", 2, 10)), TWO));
    assertEquals(List.of(), moves(parts("a", 0, 100), TWO));
    assertEquals(List.of(), moves(List.of(), TWO));
  }

  @Test
  void noMoreMoveThanMayAndTheNextTimeTheRest() {
    Map<Integer, String> places = new HashMap<>();
    parts("a", 0, equal(10, 8)).forEach(part -> places.put(part.partition(), part.executor()));
    List<Integer> rounds = new ArrayList<>();
    List<Relocation> moves;
    do {
      List<Part> held = new ArrayList<>();
      places.forEach((partition, executor) -> held.add(new Part(partition, executor, 8 << 20)));
      moves = Balance.moves(held, TWO, 2);
      moves.forEach(move -> places.put(move.part().partition(), move.to()));
      rounds.add(moves.size());
    } while (!moves.isEmpty());
    assertEquals(List.of(2, 2, 0), rounds);
    // That is as even as a move is worth.
    assertEquals(4, places.values().stream().filter("b"::equals).count());
  }

  @Test
  void stateLeavesExecutorsThatAreAboutToGo() {
    List<Part> held =
        both(parts("gone", 0, 8, 8, 16, 8), both(parts("a", 10, 8), parts("b", 11, 8, 8)));
    List<String> expected = List.of("2 gone a", "0 gone b", "1 gone a", "3 gone b");
    assertEquals(expected, moves(held, TWO));
    assertEquals(expected.subList(0, 2), moves(held, TWO, 2));
    assertEquals(List.of("0 gone a"), moves(parts("gone", 0, 8), Set.of("a")));
  }
}
