package io.holdfast.spark.badrows;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.List;
import java.util.Set;
import java.util.function.BiConsumer;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.InputFileBlockHolder$;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.catalyst.expressions.UnsafeProjection;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.XXH64;
import scala.collection.BufferedIterator;

/** Reads a source block by block, and names its rows. All rows of a block are of one file. */
final class Blocks {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Rows of a block in memory, and bytes of them. */
  private static final int ROWS_MAX = 4096;

  private static final long BYTES_MAX = 8 << 20;

  private final BufferedIterator<InternalRow> source;
  private final UnsafeProjection copier;
  private final List<String> columns;
  private final int partition;

  /** The part of a file that is read, as functions such as {@code input_file_name} see it. */
  private record Part(String file, long start, long length) {
    static Part now() {
      InputFileBlockHolder$ holder = InputFileBlockHolder$.MODULE$;
      return new Part(
          holder.getInputFilePath().toString(), holder.getStartOffset(), holder.getLength());
    }

    void show() {
      if (!file.isEmpty()) {
        InputFileBlockHolder$.MODULE$.set(file, start, length);
      }
    }
  }

  /** Rows of earlier blocks, of all and of the same part. */
  private long before;

  private long beforeOfPart;
  private Part part = new Part("", -1, -1);
  private Part partOfSource = part; // it may be at the next file, or at its end
  private Block block;

  Blocks(SourceRDD.Source source, TaskContext task) {
    this.source = source.rows().apply(task).buffered();
    copier = UnsafeProjection.create(source.schema());
    columns = Arrays.asList(source.schema().fieldNames());
    partition = task.partitionId();
  }

  /** The next block; null at the end. */
  Block next() {
    if (block != null) {
      before += block.size();
      beforeOfPart += block.size();
    }
    block = null;
    partOfSource.show();
    if (!source.hasNext()) {
      return null;
    }
    Part now = partOfNext();
    if (!now.equals(part)) {
      part = now;
      beforeOfPart = 0;
    }
    List<UnsafeRow> rows = new ArrayList<>();
    long bytes = 0;
    do {
      UnsafeRow copy = copier.apply(source.next()).copy();
      rows.add(copy);
      bytes += copy.getSizeInBytes();
    } while (rows.size() < ROWS_MAX
        && bytes < BYTES_MAX
        && source.hasNext()
        && partOfNext().equals(part));
    block = new Block(rows);
    partOfSource = Part.now();
    part.show();
    return block;
  }

  /** The part of the next row, to which the source goes. */
  private Part partOfNext() {
    source.head();
    return Part.now();
  }

  /** The number of a row of this block in the task's input. */
  long number(int row) {
    return before + row;
  }

  /** Rows in all blocks until now. */
  long read() {
    return before + (block == null ? 0 : block.size());
  }

  /** Says in JSON where a row of this block is in the source. */
  String position(int number) {
    ObjectNode position = JSON.createObjectNode();
    if (columns.containsAll(List.of("topic", "partition", "offset", "timestampType"))) {
      UnsafeRow row = block.row(number); // of Kafka
      position.put("topic", String.valueOf(row.getUTF8String(columns.indexOf("topic"))));
      position.put("partition", row.getInt(columns.indexOf("partition")));
      position.put("offset", row.getLong(columns.indexOf("offset")));
    } else if (!part.file().isEmpty()) {
      position.put("file", part.file());
      position.put("start", part.start());
      position.put("row", beforeOfPart + number);
    } else {
      position.put("partition", partition);
      position.put("row", before + number);
    }
    return position.toString();
  }

  /** Calls a function with each row of this block that has one of these digests. */
  void named(Set<String> digests, BiConsumer<Integer, String> function) {
    for (int i = 0; !digests.isEmpty() && i < block.size(); i++) {
      String digest = digest(block.row(i));
      if (digests.contains(digest)) {
        function.accept(i, digest);
      }
    }
  }

  static String digest(UnsafeRow row) {
    Object base = row.getBaseObject();
    long offset = row.getBaseOffset();
    int bytes = row.getSizeInBytes();
    return String.format(
        "%016x%016x",
        XXH64.hashUnsafeBytes(base, offset, bytes, 42),
        XXH64.hashUnsafeBytes(base, offset, bytes, 0x9E3779B97F4A7C15L));
  }
}
