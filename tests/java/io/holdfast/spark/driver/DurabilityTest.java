package io.holdfast.spark.driver;

import static org.junit.jupiter.api.Assertions.assertEquals;

import org.junit.jupiter.api.Test;

class DurabilityTest {
  @Test
  void requestsOfManyExecutorsAreSpread() {
    assertEquals(0, Durability.spreadMs(1));
    assertEquals(0, Durability.spreadMs(50));
    assertEquals(14, Durability.spreadMs(51));
    assertEquals(285, Durability.spreadMs(1_000));
  }
}
