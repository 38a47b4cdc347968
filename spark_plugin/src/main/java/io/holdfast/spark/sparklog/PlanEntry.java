package io.holdfast.spark.sparklog;

import com.fasterxml.jackson.core.JsonProcessingException;
import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.JsonNodeFactory;
import com.fasterxml.jackson.databind.node.ObjectNode;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;

/**
 * An entry of Spark's offset log, {@code <checkpoint>/offsets/N}: the plan of a batch.
 *
 * @param lines a version, facts about the whole batch as JSON, then one for each source
 */
public record PlanEntry(String[] lines) {
  private static final ObjectMapper JSON = new ObjectMapper();
  private static final int FACTS = 1;

  public static PlanEntry of(String text) {
    return new PlanEntry(text.split("\n", -1));
  }

  /** None if a very old Spark noted no settings, or if the entry is damaged. */
  public JsonNode conf() {
    return facts().path("conf");
  }

  /** Empty if the entry has no such setting. */
  public String setting(String key) {
    return conf().path(key).asText();
  }

  /** Returns true if the entry is neither cut nor damaged. */
  public boolean isWhole() {
    return lines.length > FACTS + 1 && (lines[FACTS].isBlank() || !facts().isEmpty());
  }

  /** The entry of the next batch, with the same offsets and other settings. */
  String next(Map<String, String> changes) {
    ObjectNode facts = facts();
    ObjectNode conf = (ObjectNode) facts.get("conf");
    changes.forEach(conf::put);
    String[] next = lines.clone();
    next[FACTS] = facts.toString();
    return String.join("\n", next);
  }

  public boolean says(PlanEntry other) {
    return facts().equals(other.facts()) && others().equals(other.others());
  }

  /** All lines but the facts. A machine that crashed may leave an entry empty. */
  private List<String> others() {
    List<String> others = new ArrayList<>(List.of(lines));
    if (others.size() > FACTS) {
      others.remove(FACTS);
    }
    return others;
  }

  private ObjectNode facts() {
    try {
      if (lines.length > FACTS && JSON.readTree(lines[FACTS]) instanceof ObjectNode facts) {
        return facts;
      }
    } catch (JsonProcessingException damaged) {
      // The entry counts as empty.
    }
    return JsonNodeFactory.instance.objectNode();
  }
}
