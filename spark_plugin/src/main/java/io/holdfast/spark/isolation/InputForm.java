package io.holdfast.spark.isolation;

import java.io.Serializable;
import java.util.List;
import org.apache.spark.sql.execution.SparkPlan;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The form of the rows that exchanges give to a stateful operator. Parked rows are Spark's own
 * bytes, so they can only be read in the form that they were written in.
 *
 * @param columns of a row, by exchange
 * @param text Spark's version, and for each exchange the types of the columns and how rows are
 *     divided
 */
record InputForm(int[] columns, String text) implements Serializable {
  private static final String SPARK = org.apache.spark.package$.MODULE$.SPARK_VERSION();

  static InputForm of(List<SparkPlan> exchanges) {
    int[] columns = exchanges.stream().mapToInt(exchange -> exchange.output().size()).toArray();
    StringBuilder text = new StringBuilder("Spark " + SPARK);
    for (SparkPlan exchange : exchanges) {
      text.append("; ");
      CollectionConverters.asJava(exchange.output())
          .forEach(column -> text.append(column.dataType().catalogString()).append(", "));
      // Numbers of expressions differ from batch to batch.
      text.append(exchange.outputPartitioning().toString().replaceAll("#\\d+L?", ""));
    }
    return new InputForm(columns, text.toString());
  }
}
