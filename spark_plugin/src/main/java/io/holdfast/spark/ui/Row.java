package io.holdfast.spark.ui;

/** A row of a start in Spark's store of the UI. */
interface Row {
  String key();

  /** The key of a row: rows of one start lie beside each other, by number. */
  static String keyOf(String run, long number) {
    return Html.format("%s/%019d", run, number);
  }
}
