package io.holdfast.spark.isolation.task;

import java.io.DataInput;
import java.io.DataOutput;
import java.io.IOException;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.List;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * The form of the rows that exchanges give to a stateful operator. Pending rows are Spark's own
 * bytes, so they can only be read in the form in which they were written.
 *
 * @param text Spark's version, and for each exchange the types of the columns and how rows are
 *     divided
 * @param schemas by exchange, its columns as Spark's JSON
 */
public record InputForm(String text, List<String> schemas) implements Serializable {
  public static final String SPARK = "Spark " + org.apache.spark.package$.MODULE$.SPARK_VERSION();

  public static InputForm of(List<SparkPlan> exchanges) {
    StringBuilder text = new StringBuilder(SPARK);
    for (SparkPlan exchange : exchanges) {
      text.append("; ");
      CollectionConverters.asJava(exchange.output())
          .forEach(column -> text.append(column.dataType().catalogString()).append(", "));
      // Numbers of expressions differ from batch to batch.
      text.append(exchange.outputPartitioning().toString().replaceAll("#\\d+L?", ""));
    }
    return new InputForm(
        text.toString(), exchanges.stream().map(exchange -> exchange.schema().json()).toList());
  }

  public StructType schema(int exchange) {
    return (StructType) DataType.fromJson(schemas.get(exchange));
  }

  void write(DataOutput out) throws IOException {
    write(out, text);
    out.writeByte(schemas.size());
    for (String schema : schemas) {
      write(out, schema);
    }
  }

  public static InputForm read(DataInput in) throws IOException {
    String text = readText(in);
    String[] schemas = new String[in.readByte()];
    for (int i = 0; i < schemas.length; i++) {
      schemas[i] = readText(in);
    }
    return new InputForm(text, List.of(schemas));
  }

  private static void write(DataOutput out, String text) throws IOException {
    byte[] bytes = text.getBytes(StandardCharsets.UTF_8);
    out.writeInt(bytes.length);
    out.write(bytes);
  }

  private static String readText(DataInput in) throws IOException {
    byte[] bytes = new byte[in.readInt()];
    in.readFully(bytes);
    return new String(bytes, StandardCharsets.UTF_8);
  }
}
