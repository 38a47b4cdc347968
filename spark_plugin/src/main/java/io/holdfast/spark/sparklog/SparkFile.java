package io.holdfast.spark.sparklog;

import java.util.List;
import org.apache.hadoop.fs.Path;

/**
 * A file of a checkpoint and its kind, by its name, and for an entry also by its log. Folders above
 * the log do not count, because a checkpoint may be anywhere.
 *
 * @param number of an entry, in most logs a batch; -1 for other files
 */
public record SparkFile(Path path, Kind kind, long number) {
  public enum Kind {
    PLAN, // offsets/N: a batch is planned
    COMMIT, // commits/N: a batch is over
    ENTRY, // of any other log, such as sources/0/N
    OF_STORE, // of Spark's own providers, which decide how durable it is
    OTHER
  }

  /** {@code CompactibleFileStreamLog} has entries that repeat all earlier entries. */
  private static final String COMPACT = ".compact";

  private static final String CHECKSUM = ".crc";
  private static final List<String> OF_STORES = List.of(".delta", ".snapshot", ".changelog", ".zip");
  private static final int MAX_DIGITS = 18; // as a long has room for

  public static SparkFile of(Path path) {
    String name = path.getName();
    int digits = (int) name.chars().takeWhile(sign -> sign >= '0' && sign <= '9').count();
    String end = name.substring(digits);
    if (digits > 0 && digits <= MAX_DIGITS && (end.isEmpty() || end.equals(COMPACT))) {
      Kind kind = end.isEmpty() ? ofLog(path.getParent()) : Kind.ENTRY;
      return new SparkFile(path, kind, Long.parseLong(name.substring(0, digits)));
    }
    String bare = end.endsWith(CHECKSUM) ? end.substring(0, end.length() - CHECKSUM.length()) : end;
    boolean ofStore = digits > 0 && OF_STORES.stream().anyMatch(bare::endsWith);
    return new SparkFile(path, ofStore ? Kind.OF_STORE : Kind.OTHER, -1);
  }

  private static Kind ofLog(Path log) {
    return switch (log == null ? "" : log.getName()) {
      case "offsets" -> Kind.PLAN;
      case "commits" -> Kind.COMMIT;
      default -> Kind.ENTRY;
    };
  }

  public boolean isEntry() {
    return number >= 0;
  }

  /** Returns true for an entry that repeats all earlier entries of its log. */
  public boolean isCompact() {
    return isEntry() && path.getName().endsWith(COMPACT);
  }

  /** The checkpoint of a plan or a commit. */
  public Path checkpoint() {
    return path.getParent().getParent();
  }
}
