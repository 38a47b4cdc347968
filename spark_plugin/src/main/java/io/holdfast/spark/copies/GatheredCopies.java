package io.holdfast.spark.copies;

import io.holdfast.spark.merged.FileId;
import java.io.ByteArrayOutputStream;
import java.util.Collection;
import java.util.Set;
import java.util.stream.Collectors;
import org.apache.spark.SparkEnv;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.StreamBlockId;
import org.apache.spark.util.io.ChunkedByteBuffer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.Function1;
import scala.Option;
import scala.jdk.javaapi.CollectionConverters;

/** The copies of a file whose executor is gone, for the driver. */
public final class GatheredCopies {
  private static final Logger LOG = LoggerFactory.getLogger(GatheredCopies.class);

  private final String dir;
  private final FileId file;
  private final ByteArrayOutputStream bytes = new ByteArrayOutputStream();
  private int blocks;

  private GatheredCopies(String dir, FileId file) {
    this.dir = dir;
    this.file = file;
  }

  /** Fetches all blocks of a file in their order, up to the first that nobody has. */
  public static GatheredCopies of(String dir, FileId file) {
    GatheredCopies copies = new GatheredCopies(dir, file);
    while (copies.fetchNext()) {
      copies.blocks++;
    }
    return copies;
  }

  private boolean fetchNext() {
    BlockManager manager = SparkEnv.get().blockManager();
    try {
      Option<ChunkedByteBuffer> found =
          manager.getRemoteBytes(CopyBlock.id(dir, file, blocks));
      if (found.isEmpty()) {
        return false;
      }
      CopyBlock block = CopyBlock.decode(found.get().toArray());
      if (!block.dir().equals(dir) || !block.file().equals(file) || block.offset() != bytes.size()) {
        return false;
      }
      bytes.write(block.bytes());
      return true;
    } catch (Exception e) { // Scala declares none
      LOG.warn("Copy {} of {} in {} cannot be fetched", blocks, file, dir, e);
      return false;
    }
  }

  /** Returns true if the copies have so many bytes from the start of the file. */
  public boolean reach(long end) {
    return bytes.size() >= end;
  }

  public byte[] bytes() {
    return bytes.toByteArray();
  }

  /** Removes all copies of writers that are gone. */
  public static void remove(String dir, Collection<Long> terms) {
    Set<Integer> streams =
        terms.stream().map(term -> CopyBlock.stream(dir, term)).collect(Collectors.toSet());
    Function1<BlockId, Object> isOfTerms =
        id -> id instanceof StreamBlockId copy && streams.contains(copy.streamId());
    CommitCopies.remove(
        master -> CollectionConverters.asJava(master.getMatchingBlockIds(isOfTerms, false)));
  }
}
