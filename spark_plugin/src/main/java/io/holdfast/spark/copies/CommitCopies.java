package io.holdfast.spark.copies;

import io.holdfast.spark.Native;
import io.holdfast.spark.merged.FileId;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.atomic.AtomicBoolean;
import java.util.function.Function;
import org.apache.spark.SparkEnv;
import org.apache.spark.storage.BlockId;
import org.apache.spark.storage.BlockManager;
import org.apache.spark.storage.BlockManagerMaster;
import org.apache.spark.storage.StorageLevel;
import org.apache.spark.util.io.ChunkedByteBuffer;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.reflect.ClassTag$;

/** The copies of one manager of an executor. A commit reports its id after its bytes have a copy. */
public final class CommitCopies {
  private static final Logger LOG = LoggerFactory.getLogger(CommitCopies.class);

  /** In memory or on disk, as bytes, here and on one other executor. */
  private static final StorageLevel TWO_PLACES = StorageLevel.MEMORY_AND_DISK_SER_2();

  private static final AtomicBoolean WARNED = new AtomicBoolean();

  private static final class Copied {
    int blocks;
    long bytes;

    /** A block is missing. Blocks after it would be of no use. */
    boolean isCut;
  }

  private final String dir;
  private final long term;
  private final long manager;

  /** By number of an unfinished file. */
  private final Map<Long, Copied> files = new HashMap<>();

  public CommitCopies(String dir, long term, long manager) {
    this.dir = dir;
    this.term = term;
    this.manager = manager;
  }

  /**
   * Copies what commits have appended. A commit that finds nothing has waited for the one that
   * copies its bytes. A copy that fails costs safety and no commit: files are durable without it.
   */
  public synchronized void copy() {
    byte[] taken;
    while ((taken = Native.takeUncopied(manager)).length > 0) {
      copy(ByteBuffer.wrap(taken));
    }
  }

  private void copy(ByteBuffer appended) {
    while (appended.hasRemaining()) {
      FileId file = new FileId(term, appended.getLong());
      byte[] bytes = new byte[(int) appended.getLong()];
      appended.get(bytes);
      Copied copied = files.computeIfAbsent(file.number(), number -> new Copied());
      if (!copied.isCut) {
        BlockId id = CopyBlock.id(dir, file, copied.blocks);
        copied.isCut = !put(id, new CopyBlock(dir, file, copied.bytes, bytes));
        copied.blocks++;
        copied.bytes += bytes.length;
      }
    }
  }

  /** Returns false if no other executor took the block. */
  private static boolean put(BlockId id, CopyBlock block) {
    BlockManager blocks = SparkEnv.get().blockManager();
    try {
      // The block manager asks the driver once a minute, and executors come at any time.
      if (blocks.getPeers(false).isEmpty() && blocks.getPeers(true).isEmpty()) {
        warnAlone();
        return false;
      }
      ChunkedByteBuffer bytes = new ChunkedByteBuffer(ByteBuffer.wrap(block.encode()));
      boolean done =
          blocks.putBytes(
              id,
              bytes,
              TWO_PLACES,
              false, // the driver needs to know of the other place only
              scala.Option.empty(), // from-4.3
              false, // from-4.3
              ClassTag$.MODULE$.apply(byte[].class));
      blocks.removeBlock(id, false);
      return done;
    } catch (Exception e) { // Scala declares none
      LOG.warn("{} could not be copied to another executor", block.file(), e);
      if (e instanceof InterruptedException) {
        Thread.currentThread().interrupt();
      }
      return false;
    }
  }

  /** Says once that nothing is copied. */
  public static void warnAlone() {
    if (WARNED.compareAndSet(false, true)) {
      LOG.warn(
          "There is no other executor that could keep copies of commits. If this one dies before a"
              + " batch is committed, the query stops and has to be started again");
    }
  }

  /** Returns the blocks of files up to this number, which are finished or lost, and forgets them. */
  public synchronized List<BlockId> takeFinished(long number) {
    List<BlockId> ids = new ArrayList<>();
    files
        .entrySet()
        .removeIf(
            one -> {
              FileId file = new FileId(term, one.getKey());
              if (file.number() > number) {
                return false;
              }
              for (int block = 0; block < one.getValue().blocks; block++) {
                ids.add(CopyBlock.id(dir, file, block));
              }
              return true;
            });
    return ids;
  }

  /** Removes blocks everywhere. A block that stays takes memory, so nothing fails. */
  public static void remove(Function<BlockManagerMaster, Collection<BlockId>> blocks) {
    try {
      BlockManagerMaster master = SparkEnv.get().blockManager().master();
      blocks.apply(master).forEach(master::removeBlock);
    } catch (Exception e) { // Scala declares none
      LOG.warn("Not all copies of commits were removed", e);
    }
  }
}
