package io.holdfast.spark.badrows;

import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.isolation.driver.Failures;
import java.util.ArrayList;
import java.util.Base64;
import java.util.HashMap;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.Set;
import java.util.function.Supplier;
import org.apache.spark.TaskContext;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;

/** The rows of one partition that a task leaves out. Its stage gets all others. */
final class LeftOut implements SourceInput {
  private static final ObjectMapper JSON = new ObjectMapper();

  /** Rows with equal content. The letter is null if the marker has one. */
  private record Rows(String digest, List<String> positions, ObjectNode letter) {}

  private final TaskContext task;
  private final Set<String> named;
  private final Map<String, Rows> found = new LinkedHashMap<>(); // by digest

  /** By number in the task's input, the digest of a row that the search found. */
  private final Map<Long, String> numbers = new HashMap<>();

  private Blocks delivered;

  LeftOut(List<String> named, TaskContext task) {
    this.named = new HashSet<>(named);
    this.task = task;
  }

  Set<String> named() {
    return named;
  }

  /** Rows that the search found. */
  long count() {
    return numbers.size();
  }

  boolean isEmpty() {
    return named.isEmpty() && numbers.isEmpty();
  }

  void add(Blocks blocks, int number, UnsafeRow row, Throwable failure) {
    String digest = Blocks.digest(row);
    numbers.put(blocks.number(number), digest);
    add(digest, blocks.position(number), () -> letter(row, failure));
  }

  private void add(String digest, String position, Supplier<ObjectNode> letter) {
    found
        .computeIfAbsent(digest, key -> new Rows(digest, new ArrayList<>(), letter.get()))
        .positions()
        .add(position);
  }

  private static ObjectNode letter(UnsafeRow row, Throwable failure) {
    return JSON.createObjectNode()
        .put("class", Failures.kind(failure))
        .put("error", Failures.text(failure))
        .put("at_ms", System.currentTimeMillis())
        .put("row", Base64.getEncoder().encodeToString(row.getBytes()));
  }

  @Override
  public Iterator<?> read(Source source) {
    delivered = new Blocks(source, task);
    return new AbstractIterator<Object>() {
      private Iterator<?> slice = scala.collection.Iterator.empty();

      @Override
      public boolean hasNext() {
        while (!slice.hasNext()) {
          Block block = delivered.next();
          if (block == null) {
            return false;
          }
          leaveOut(block);
          slice = block.slice(0, block.size());
        }
        return true;
      }

      @Override
      public Object next() {
        return slice.next();
      }
    };
  }

  private void leaveOut(Block block) {
    for (int i = 0; i < block.size(); i++) {
      String digest = numbers.get(delivered.number(i));
      if (digest != null) {
        if (!digest.equals(Blocks.digest(block.row(i)))) {
          throw new HoldfastException(
              "A source gave other rows when a task read it again: bad rows cannot be set aside");
        }
        block.leftOut.set(i);
      }
    }
    delivered.named(
        named,
        (number, digest) -> {
          block.leftOut.set(number);
          add(digest, delivered.position(number), () -> null);
        });
  }

  /** Rows of the partition, once all are delivered. */
  long read() {
    return delivered.read();
  }

  /** The rows, as the core reads them. */
  String toJson() {
    return JSON.valueToTree(found.values()).toString();
  }
}
