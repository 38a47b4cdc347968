package io.holdfast.spark.driver;

import static org.junit.jupiter.api.Assertions.assertArrayEquals;
import static org.junit.jupiter.api.Assertions.assertEquals;
import static org.junit.jupiter.api.Assertions.assertFalse;
import static org.junit.jupiter.api.Assertions.assertTrue;

import io.holdfast.spark.Native;
import io.holdfast.spark.merged.SegmentFolder;
import java.nio.file.Path;
import java.util.List;
import org.junit.jupiter.api.Test;
import org.junit.jupiter.api.io.TempDir;

class KnownFilesTest {
  private static final String[] NONE = {};

  @TempDir Path dir;

  private SegmentFolder folder() {
    return SegmentFolder.named(dir.toString(), null);
  }

  @Test
  void aCatalogReplacesOthersAndIsFoundByTheNextDriver() {
    KnownFiles known = new KnownFiles();
    assertFalse(known.restore(folder()));
    String beside = folder().ofDriver().name;
    String first = Native.writeCatalog(beside, null, 7, 1, new byte[0], NONE);
    String second = Native.writeCatalog(beside, null, 7, 2, new byte[0], new String[] {first});
    assertArrayEquals(
        new String[] {second}, Native.readCatalogs(known.cache(), dir.toString(), beside, null));
    assertTrue(known.restore(folder()));
    assertEquals(0, Native.catalog(known.cache(), dir.toString()).length);
    known.close();
  }

  @Test
  void whatCannotBeReadIsNoNewsForACatalog() {
    KnownFiles known = new KnownFiles();
    known.told(folder(), List.of(new byte[0]));
    assertFalse(known.hasNews(folder()));
    known.told(folder(), List.of(new byte[] {1, 2, 3}));
    assertTrue(known.hasNews(folder()));
    known.learn(folder(), 7);
    assertFalse(known.hasNews(folder()));
    known.replaceCatalogs(folder(), 7);
    assertFalse(known.restore(folder()));
    known.close();
  }
}
