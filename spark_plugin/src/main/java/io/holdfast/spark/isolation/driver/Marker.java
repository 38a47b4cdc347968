package io.holdfast.spark.isolation.driver;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import java.util.Map;

/**
 * The durable decisions about one batch, as the core gives them.
 *
 * @param times of the batch: watermarks and timestamps of the operator, by the names of its fields
 */
@JsonIgnoreProperties(ignoreUnknown = true)
record Marker(Map<String, Long> times, Map<Integer, Parked> parked) {
  /**
   * A parked partition.
   *
   * @param atMs when it was parked in this batch
   * @param error of the last try
   * @param waits the groups of keys whose rows wait
   */
  @JsonIgnoreProperties(ignoreUnknown = true)
  record Parked(@JsonProperty("at_ms") long atMs, String error, List<Integer> waits) {}
}
