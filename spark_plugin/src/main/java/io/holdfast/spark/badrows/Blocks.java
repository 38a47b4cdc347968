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
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.collection.Iterator;

/** Reads a source block by block, and names its rows. All rows of a block are of one file. */
final class Blocks {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Rows of a block in memory, and bytes of them. */
  private static final int ROWS_MAX = 4096;

  private static final long BYTES_MAX = 8 << 20;

  private final Iterator<?> source;
  private final boolean columnar;
  private final UnsafeProjection copier;
  private final int[] kafka; // columns with topic, partition and offset; null without
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

  private Object ahead; // a row of the next block
  private Part partAhead;

  /** Rows of earlier blocks, of all and of the same part. */
  private long before;

  private long beforeOfPart;
  private Part part = new Part("", -1, -1);
  private Part partOfSource = part; // it may be at the next file, or at its end
  private Block block;

  Blocks(SourceInput.Source source, TaskContext task) {
    this.source = source.rows().apply(task);
    columnar = source.columnar();
    copier = UnsafeProjection.create(source.schema());
    List<String> names = Arrays.asList(source.schema().fieldNames());
    kafka =
        names.containsAll(List.of("topic", "partition", "offset", "timestampType"))
            ? new int[] {
              names.indexOf("topic"), names.indexOf("partition"), names.indexOf("offset")
            }
            : null;
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
    if (ahead == null && !source.hasNext()) {
      return null;
    }
    Object first = ahead == null ? source.next() : ahead;
    Part now = ahead == null ? Part.now() : partAhead;
    ahead = null;
    if (!now.equals(part)) {
      part = now;
      beforeOfPart = 0;
    }
    block =
        columnar ? new Block.OfColumns((ColumnarBatch) first, copier) : ofRows((InternalRow) first);
    partOfSource = Part.now();
    part.show();
    return block;
  }

  private Block ofRows(InternalRow first) {
    List<UnsafeRow> rows = new ArrayList<>();
    InternalRow row = first;
    long bytes = 0;
    while (true) {
      UnsafeRow copy = copier.apply(row).copy();
      rows.add(copy);
      bytes += copy.getSizeInBytes();
      if (rows.size() == ROWS_MAX || bytes >= BYTES_MAX || !source.hasNext()) {
        return new Block.OfRows(rows);
      }
      row = (InternalRow) source.next();
      partAhead = Part.now();
      if (!partAhead.equals(part)) {
        ahead = copier.apply(row).copy();
        return new Block.OfRows(rows);
      }
    }
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
    if (kafka != null) {
      UnsafeRow row = block.row(number);
      position.put("topic", String.valueOf(row.getUTF8String(kafka[0])));
      position.put("partition", row.getInt(kafka[1]));
      position.put("offset", row.getLong(kafka[2]));
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
