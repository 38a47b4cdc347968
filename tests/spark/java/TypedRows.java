import org.apache.spark.api.java.function.MapFunction;
import org.apache.spark.sql.Dataset;
import org.apache.spark.sql.Encoders;
import org.apache.spark.sql.Row;

/** A typed {@code map} that throws for some rows. */
public final class TypedRows {
  /** Reads the column {@code v} as numbers. */
  public Dataset<Row> map(Dataset<Row> rows) {
    MapFunction<Row, Long> parse =
        row -> 1000 * row.<Long>getAs("id") + Long.parseLong(row.getAs("v"));
    return rows.map(parse, Encoders.LONG()).toDF("x");
  }
}
