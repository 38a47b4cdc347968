package io.holdfast.spark.moves;

import java.io.Serializable;
import java.math.BigInteger;
import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Queue;
import java.util.stream.IntStream;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.util.LongAccumulator;
import org.apache.spark.util.TaskCompletionListener;
import scala.Tuple2;

/**
 * The rows of an old partition of an operator, as chunks for the new partitions. Holds a chunk for
 * each new partition, and one row.
 */
final class SplitRows implements Iterator<Tuple2<Integer, byte[]>> {
  /**
   * An old partition of an operator.
   *
   * @param place number of the operator's first new partition, among those of all operators
   * @param from the old number of partitions of the operator
   * @param to its new number of partitions
   * @param ids of its stores
   */
  record Source(Operator operator, int place, int from, int to, int partition, String[] ids)
      implements Serializable {
    /** A key of an old and a new partition has the same rest by it in both. */
    int divisor() {
      return BigInteger.valueOf(from).gcd(BigInteger.valueOf(to)).intValue();
    }
  }

  /** Bytes of all chunks that are not full yet. */
  private static final int CHUNKS_BYTES = 16 << 20;

  private static final int CHUNK_BYTES_MAX = 64 << 10;

  private final Source source;
  private final SourceStores stores;
  private final long version;
  private final long limit;
  private final LongAccumulator rows;
  private final LongAccumulator bytes;
  private final RowChunks[] chunks;
  private final int chunkBytes;
  private final Queue<Tuple2<Integer, byte[]>> full = new ArrayDeque<>();

  private int number = -1;
  private StateStoreProvider provider;
  private ReadStateStore store;
  private RowReader read;
  private KeyHash[] hashes;
  private boolean over;

  /** Counts rows and their bytes, up to a limit for each column family. */
  SplitRows(
      Source source,
      SourceStores stores,
      long version,
      long limit,
      LongAccumulator rows,
      LongAccumulator bytes) {
    this.source = source;
    this.stores = stores;
    this.version = version;
    this.limit = limit;
    this.rows = rows;
    this.bytes = bytes;
    chunks =
        IntStream.range(0, source.to()).mapToObj(to -> new RowChunks()).toArray(RowChunks[]::new);
    chunkBytes = Math.min(CHUNK_BYTES_MAX, CHUNKS_BYTES / source.to());
    TaskContext.get().addTaskCompletionListener((TaskCompletionListener) ended -> close());
  }

  @Override
  public boolean hasNext() {
    while (full.isEmpty() && !over) {
      if (read != null && read.next()) {
        take();
      } else if (!openNextStore()) {
        over = true;
        IntStream.range(0, chunks.length).filter(to -> chunks[to].size() > 0).forEach(this::give);
      }
    }
    return !full.isEmpty();
  }

  @Override
  public Tuple2<Integer, byte[]> next() {
    if (!hasNext()) {
      throw new NoSuchElementException("the rows are over");
    }
    return full.remove();
  }

  private void take() {
    int to =
        hashes == null
            ? source.partition()
            : hashes[read.number()].of(read.key(), source.partition());
    if (read.isFirst() && chunks[to].size() >= chunkBytes) {
      give(to);
    }
    chunks[to].add(number, read);
    rows.add(1);
    bytes.add(read.bytes());
  }

  private void give(int to) {
    full.add(new Tuple2<>(source.place() + to, chunks[to].take()));
  }

  /** False if there is none. */
  private boolean openNextStore() {
    close();
    number++;
    if (number == source.operator().stores().size()) {
      return false;
    }
    Operator.Store form = source.operator().stores().get(number);
    hashes = KeyHash.of(source.operator(), form, source.from(), source.to());
    provider = stores.provider(source.operator(), number, source.partition());
    store = SourceStores.open(provider, version, source.ids()[number], form);
    read = new RowReader(store, form, limit);
    return true;
  }

  private void close() {
    if (read != null) {
      read.close();
      read = null;
    }
    if (store != null) {
      store.abort();
      store = null;
    }
    if (provider != null) {
      provider.close();
      provider = null;
    }
  }
}
