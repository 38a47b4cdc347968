package io.holdfast.spark.isolation.plan;

import com.fasterxml.jackson.annotation.JsonProperty;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.Native;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.util.Arrays;
import java.util.HashMap;
import java.util.HexFormat;
import java.util.List;
import java.util.Map;
import java.util.stream.LongStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/**
 * Pending rows that a person moved to dead letters: {@code <checkpoint>/isolation/skipped}. Only
 * {@code holdfast parked skip} writes the file.
 */
record Skips(@JsonProperty("version") int version, @JsonProperty("skipped") List<Skip> skipped) {
  /**
   * Rows of one input.
   *
   * @param segment the last piece of the input, as an id names it. Other input of the same batch,
   *     from a run to which a person went back, is complete.
   * @param rows ranges of their numbers: the first, and the one after the last
   * @param deadLetters the folder of the rows
   * @param done false while the rows may be missing there
   */
  record Skip(
      @JsonProperty("operator") long operator,
      @JsonProperty("partition") int partition,
      @JsonProperty("batch") long batch,
      @JsonProperty("segment") String segment,
      @JsonProperty("rows") long[][] rows,
      @JsonProperty("dead_letters") String deadLetters,
      @JsonProperty("done") boolean done) {}

  private static final int VERSION = 1;

  /** The file need not exist. The command line may write it at any time. */
  static Skips read(Path checkpoint, Configuration conf) {
    Path file = new Path(new Path(checkpoint, "isolation"), "skipped");
    try (InputStream in = file.getFileSystem(conf).open(file)) {
      Skips found = new ObjectMapper().readValue(in, Skips.class);
      if (found.version != VERSION) {
        throw new IOException(file + " was written by a newer Holdfast");
      }
      return found;
    } catch (FileNotFoundException none) {
      return new Skips(VERSION, List.of());
    } catch (IOException e) {
      throw new HoldfastException("Cannot read which rows are skipped: " + e.getMessage(), e);
    }
  }

  /** By partition with pending input ({@code ids}), bounds of ranges of rows to leave out. */
  Map<Integer, long[]> of(long operator, long batch, Map<Integer, String> ids) {
    Map<Integer, long[]> ranges = new HashMap<>();
    for (Skip skip : skipped) {
      String id = ids.get(skip.partition);
      if (id == null || skip.operator != operator || skip.batch != batch) {
        continue;
      }
      byte[] segment = Native.pendingSegment(id, batch + 1);
      if (!HexFormat.of().formatHex(segment).equals(skip.segment)) {
        continue;
      }
      if (!skip.done) {
        throw new HoldfastException(
            String.format(
                "'holdfast parked skip --partition %d' began to move parked rows to %s and has not"
                    + " finished. Run the same command again before the query goes on.",
                skip.partition, skip.deadLetters));
      }
      long[] known = ranges.getOrDefault(skip.partition, new long[0]);
      LongStream more = Arrays.stream(skip.rows).flatMapToLong(Arrays::stream);
      // No two ranges overlap, so each remains in one piece.
      long[] all = LongStream.concat(Arrays.stream(known), more).sorted().toArray();
      ranges.put(skip.partition, all);
    }
    return ranges;
  }
}
