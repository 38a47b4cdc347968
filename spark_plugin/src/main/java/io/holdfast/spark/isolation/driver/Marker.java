package io.holdfast.spark.isolation.driver;

import com.fasterxml.jackson.annotation.JsonIgnoreProperties;
import com.fasterxml.jackson.annotation.JsonProperty;
import java.util.List;
import java.util.Map;

/** The core's durable decisions about a batch. Times and watermarks are by operator field. */
@JsonIgnoreProperties(ignoreUnknown = true)
record Marker(Map<String, Long> times, Map<Integer, Parked> parked) {
  /** A partition parked in this batch, with the last error and groups of keys with waiting rows. */
  @JsonIgnoreProperties(ignoreUnknown = true)
  record Parked(@JsonProperty("at_ms") long atMs, String error, List<Integer> waits) {}
}
