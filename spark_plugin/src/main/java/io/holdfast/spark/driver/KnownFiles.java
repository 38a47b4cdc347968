package io.holdfast.spark.driver;

import io.holdfast.spark.Native;
import io.holdfast.spark.merged.SegmentFolder;
import java.io.ByteArrayOutputStream;
import java.util.ArrayList;
import java.util.Collection;
import java.util.List;
import java.util.Map;
import java.util.Queue;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * Facts about sealed files. On object stores executors tell of the files that they finish, and
 * catalogs keep it for the next start. Catalogs are hints: without them files are read.
 */
final class KnownFiles {
  private static final Logger LOG = LoggerFactory.getLogger(KnownFiles.class);

  /** So many executors have told before a catalog is worth its request. */
  private static final int FEW = 32;

  private static final class Folder {
    final Queue<byte[]> told = new ConcurrentLinkedQueue<>();

    /** Learned, and in no catalog yet. */
    final ByteArrayOutputStream fresh = new ByteArrayOutputStream();

    int freshParts;

    /** Names of the catalogs that the next complete one replaces. */
    final List<String> catalogs = new ArrayList<>();
  }

  private final Map<String, Folder> folders = new ConcurrentHashMap<>();
  private long cache; // 0 before its first use
  private long catalogs; // written so far

  private Folder of(SegmentFolder where) {
    return folders.computeIfAbsent(where.name, key -> new Folder());
  }

  synchronized long cache() {
    if (cache == 0) {
      cache = Native.openIndexCache();
    }
    return cache;
  }

  /** A user of the cache that still runs keeps it alive. A later one fails, as it should. */
  synchronized void close() {
    if (cache != 0) {
      Native.closeIndexCache(cache);
    }
  }

  /** Executors have told of finished files. No caller waits for a clean-up. */
  void told(SegmentFolder where, Collection<byte[]> files) {
    files.stream().filter(part -> part.length > 0).forEach(of(where).told::add);
  }

  boolean hasNews(SegmentFolder where) {
    return !of(where).told.isEmpty();
  }

  /** Reads the catalogs of earlier applications. Returns false if there are none. */
  boolean restore(SegmentFolder where) {
    Folder folder = of(where);
    SegmentFolder beside = where.ofDriver();
    try {
      String[] found = Native.readCatalogs(cache(), where.name, beside.name, beside.files());
      folder.catalogs.clear();
      folder.catalogs.addAll(List.of(found));
      return found.length > 0;
    } catch (RuntimeException e) {
      LOG.warn("Catalogs in {} cannot be read, so a clean-up reads more files", beside.name, e);
      return false;
    }
  }

  /** Learns what executors told. {@code term} is the newest of this application. */
  void learn(SegmentFolder where, long term) {
    Folder folder = of(where);
    for (byte[] part = folder.told.poll(); part != null; part = folder.told.poll()) {
      try {
        Native.learnFiles(cache(), where.name, part);
        folder.fresh.writeBytes(part);
        folder.freshParts++;
      } catch (RuntimeException e) {
        LOG.warn("Files of {} will be read, because what was told of them cannot", where.name, e);
      }
    }
    if (folder.freshParts >= FEW) {
      write(where, folder, term, folder.fresh.toByteArray(), new String[0]);
    }
  }

  /** One catalog has all known files, and replaces the others. */
  void replaceCatalogs(SegmentFolder where, long term) {
    Folder folder = of(where);
    if (folder.freshParts > 0 || folder.catalogs.size() > 1) {
      String[] replaced = folder.catalogs.toArray(String[]::new);
      write(where, folder, term, Native.catalog(cache(), where.name), replaced);
    }
  }

  private void write(
      SegmentFolder where, Folder folder, long term, byte[] content, String[] replaced) {
    SegmentFolder beside = where.ofDriver();
    folder.fresh.reset();
    folder.freshParts = 0;
    try {
      String name =
          Native.writeCatalog(beside.name, beside.files(), term, ++catalogs, content, replaced);
      folder.catalogs.removeAll(List.of(replaced));
      folder.catalogs.add(name);
    } catch (RuntimeException e) {
      LOG.warn("A catalog in {} was not written, so the next start reads more", beside.name, e);
    }
  }
}
