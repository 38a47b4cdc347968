package io.holdfast.spark.ui;

/** A row of a start in Spark's store of the UI. */
interface Row {
  String key();

  /** Rows of one start are next to each other in Spark's store, by number. */
  static String keyOf(String run, long number) {
    return Html.format("%s/%019d", run, number);
  }
}
