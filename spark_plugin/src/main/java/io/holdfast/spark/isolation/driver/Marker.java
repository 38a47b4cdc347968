package io.holdfast.spark.isolation.driver;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import java.util.Map;

/**
 * The durable decisions about one batch. The times are the operator's, by the names of its fields.
 */
@JsonIgnoreProperties(ignoreUnknown = true)
record Marker(Map<String, Long> times, Map<Integer, Parked> parked) {
  /**
   * A partition parked in this batch, with the last error and the groups of keys whose rows wait.
   */
  @JsonIgnoreProperties(ignoreUnknown = true)
  record Parked(@JsonProperty("at_ms") long atMs, String error, List<Integer> waits) {}
}
