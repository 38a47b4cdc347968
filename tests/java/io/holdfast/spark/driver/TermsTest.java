package io.holdfast.spark.driver;

import static org.junit.jupiter.api.Assertions.assertDoesNotThrow;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertThrows;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.merged.SegmentFolder;
import java.io.IOException;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.stream.Stream;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class TermsTest {
  @TempDir Path dir;

  private SegmentFolder folder() {
    return SegmentFolder.named(dir.toString(), null);
  }

  private static Terms.Writer writer(String executor) {
    return new Terms.Writer(executor, null);
  }

  /** An application that begins a run and has given its first term. */
  private Terms begun() {
    Terms terms = new Terms();
    terms.starting(folder());
    terms.forRun(folder(), 0, writer("1"));
    return terms;
  }

  private List<String> markers() throws IOException {
    try (Stream<Path> files = Files.list(dir.resolve("driver"))) {
      return files.map(file -> file.getFileName().toString()).toList();
    }
  }

  private void file(long term) throws IOException {
    Files.createFile(dir.resolve(String.format("%016x-%08x.hf", term, 1)));
  }

  @Test
  void anApplicationThatTakesOverStopsTheOlderOneBeforeItHasAFile() throws IOException {
    Terms older = begun();
    older.requireNewest(folder());
    Terms newer = begun();
    assertThrows(HoldfastException.class, () -> older.requireNewest(folder()));
    newer.requireNewest(folder());
    assertEquals(1, markers().size(), "the newer one removed the older one's marker");
    assertTrue(newer.newest(dir.toString()) > older.newest(dir.toString()));
  }

  @Test
  void aReaderOfTheStateStopsNoQuery() {
    Terms query = begun();
    Terms reader = new Terms();
    assertTrue(reader.forRun(folder(), 0, writer("1")) > query.newest(dir.toString()));
    query.requireNewest(folder());
  }

  @Test
  void aRunAfterwardsTakesOverAgain() {
    Terms first = begun();
    Terms second = begun();
    first.starting(folder());
    long held = first.newest(dir.toString());
    long given = first.forRun(folder(), held, writer("1"));
    assertTrue(given > second.newest(dir.toString()));
    first.requireNewest(folder());
    assertThrows(HoldfastException.class, () -> second.requireNewest(folder()));
  }

  @Test
  void anExecutorKeepsItsTermFromRunToRun() throws IOException {
    Terms terms = begun();
    List<String> before = markers();
    long held = terms.live(dir.toString())[0];
    terms.starting(folder());
    assertEquals(held, terms.forRun(folder(), held, writer("1")));
    assertEquals(before, markers());
    assertTrue(terms.forRun(folder(), 0, writer("2")) > held);
  }

  @Test
  void termsAreAboveFilesOfApplicationsWithoutAMarker() throws IOException {
    long ahead = (System.currentTimeMillis() + 1_000_000) * 1_000;
    file(ahead);
    assertTrue(begun().live(dir.toString())[0] > ahead);
  }

  @Test
  void aFileOfAnApplicationWithoutAMarkerEndsTheRunOnceACleanUpFoundIt() throws IOException {
    Terms terms = begun();
    file(terms.newest(dir.toString()) + 1);
    assertDoesNotThrow(() -> terms.requireNewest(folder()));
    terms.lookForOthers(folder());
    assertThrows(HoldfastException.class, () -> terms.requireNewest(folder()));
    terms.starting(folder());
    assertDoesNotThrow(() -> terms.requireNewest(folder()));
  }

  @Test
  void aDeletedFolderIsMarkedAgain() throws IOException {
    Terms terms = begun();
    for (String marker : markers()) {
      Files.delete(dir.resolve("driver").resolve(marker));
    }
    terms.starting(folder());
    terms.requireNewest(folder());
    assertEquals(1, markers().size());
  }
}
