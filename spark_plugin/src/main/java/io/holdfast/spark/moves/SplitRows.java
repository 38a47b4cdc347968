package io.holdfast.spark.moves;

import java.util.ArrayDeque;
import java.util.Iterator;
import java.util.NoSuchElementException;
import java.util.Queue;
import java.util.stream.IntStream;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.util.LongAccumulator;
import org.apache.spark.util.TaskCompletionListener;
import scala.Tuple2;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The rows of an old partition of an operator, as chunks for the new partitions. It holds a chunk
 * for each new partition, and one row.
 */
final class SplitRows implements Iterator<Tuple2<Integer, byte[]>> {
  /** Bytes of all chunks that are not full yet. */
  private static final int CHUNKS_BYTES = 16 << 20;

  private static final int CHUNK_BYTES_MAX = 64 << 10;

  private final Repartition.Source source;
  private final Repartition.Stores stores;
  private final long limit;
  private final LongAccumulator rows;
  private final LongAccumulator bytes;
  private final TaskContext task = TaskContext.get();
  private final RowChunks[] chunks;
  private final int chunkBytes;
  private final Queue<Tuple2<Integer, byte[]>> full = new ArrayDeque<>();

  private int storeNumber;
  private int familyNumber = -1;
  private StateStoreProvider provider;
  private ReadStateStore store;
  private Operator.Family family;
  private KeyHash hash;
  private StateStoreIterator<UnsafeRowPair> pairs;
  private long keys;
  private KeyCount counted;
  private UnsafeRow lastKey;
  private boolean over;

  /**
   * @param limit on the rows of each column family
   * @param rows counts those that were read
   * @param bytes counts theirs
   */
  SplitRows(
      Repartition.Source source,
      Repartition.Stores stores,
      long limit,
      LongAccumulator rows,
      LongAccumulator bytes) {
    this.source = source;
    this.limit = limit;
    this.stores = stores;
    this.rows = rows;
    this.bytes = bytes;
    chunks =
        IntStream.range(0, source.to()).mapToObj(to -> new RowChunks()).toArray(RowChunks[]::new);
    chunkBytes = Math.min(CHUNK_BYTES_MAX, CHUNKS_BYTES / source.to());
    task.addTaskCompletionListener((TaskCompletionListener) ended -> close());
  }

  @Override
  public boolean hasNext() {
    while (full.isEmpty() && !over) {
      task.killTaskIfInterrupted();
      if (pairs != null && keys < limit && pairs.hasNext()) {
        keys++;
        take(pairs.next());
      } else if (!openNextFamily()) {
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

  private void take(UnsafeRowPair pair) {
    int to =
        hash == null ? source.partition() : hash.of(pair.key(), source.partition());
    // until-4.1: if (family.severalValues()) {
    // until-4.1:   CollectionConverters.asJava(store.valuesIterator(pair.key(), family.name()))
    // until-4.1:       .forEachRemaining(value -> add(to, pair.key(), value));
    // until-4.1:   return;
    // until-4.1: }
    add(to, pair.key(), pair.value());
  }

  private void add(int to, UnsafeRow key, UnsafeRow value) {
    boolean first = !family.severalValues() || !key.equals(lastKey);
    if (first) {
      lastKey = family.severalValues() ? key.copy() : null;
      counted.add(family);
    }
    if (first && chunks[to].size() >= chunkBytes) {
      give(to);
    }
    chunks[to].add(storeNumber, familyNumber, first, key, value);
    rows.add(1);
    bytes.add(key.getSizeInBytes() + value.getSizeInBytes());
  }

  private void give(int to) {
    full.add(new Tuple2<>(source.place() + to, chunks[to].take()));
  }

  /** Opens the next family, of the next store if need be; false if there is none. */
  private boolean openNextFamily() {
    closeFamily();
    familyNumber++;
    if (store != null && familyNumber == form().families().size()) {
      if (limit == Long.MAX_VALUE) {
        counted.require(store);
      }
      closeStore();
      storeNumber++;
      familyNumber = 0;
    }
    if (storeNumber == source.operator().stores().size()) {
      return false;
    }
    if (store == null) {
      provider = stores.provider(source.operator(), storeNumber, source.partition());
      store =
          SourceStores.open(provider, stores.version(), source.ids()[storeNumber], form());
      familyNumber = 0;
      counted = new KeyCount();
    }
    keys = 0;
    family = form().families().get(familyNumber);
    hash =
        source.from() == source.to()
            ? null
            : new KeyHash(source.operator(), form(), family, source.from(), source.to());
    pairs =
        family.severalValues() ? store.iteratorWithMultiValues(family.name()) : // from-4.2
        store.iterator(family.name());
    return true;
  }

  private Operator.Store form() {
    return source.operator().stores().get(storeNumber);
  }

  private void closeFamily() {
    if (pairs != null) {
      pairs.close();
      pairs = null;
      lastKey = null;
    }
  }

  private void closeStore() {
    if (store != null) {
      store.abort();
      store = null;
    }
    if (provider != null) {
      provider.close();
      provider = null;
    }
  }

  private void close() {
    closeFamily();
    closeStore();
  }
}
