package io.holdfast.spark.badrows;

import io.holdfast.spark.isolation.plan.GuardExec;
import java.util.function.Function;
import java.util.function.Supplier;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.RowToColumnConverter;
import org.apache.spark.sql.execution.SparkPlan;
import org.apache.spark.sql.execution.vectorized.OnHeapColumnVector;
import org.apache.spark.sql.types.DataType;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.NullType;
import org.apache.spark.sql.types.StringType;
import org.apache.spark.sql.types.StructType;
import org.apache.spark.sql.types.UserDefinedType;
import org.apache.spark.sql.vectorized.ColumnarBatch;
import scala.Function$;
import scala.Option;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** The rows of a source, or those that an {@link Input} gives in their place. */
final class SourceRDD<T> extends RDD<T> {
  private static final long serialVersionUID = 1L;

  /** Gives other rows to the source of a stage, while a task computes the stage. */
  interface Input {
    /** The source asks for its rows once in each computation of the stage. */
    Iterator<InternalRow> read(Source source);
  }

  /** The source that a task reads. A task has Spark's rows from the begin. */
  record Source(Function<TaskContext, Iterator<InternalRow>> rows, StructType schema) {}

  /** The input of this thread; without one a source has Spark's rows. */
  private static final ThreadLocal<Input> INPUT = new ThreadLocal<>();

  private final RDD<T> rows;
  private final boolean columnar;
  private final StructType schema;

  /** Lets tasks give other rows to the stage above a source. */
  record Execution() implements GuardExec.Execution {
    @Override
    public RDD<InternalRow> execute(SparkPlan source) {
      return new SourceRDD<>(source.execute(), false, source.schema());
    }

    @Override
    public boolean isColumnar(SparkPlan source) {
      return source.supportsColumnar();
    }

    @Override
    public RDD<ColumnarBatch> executeColumnar(SparkPlan source) {
      return new SourceRDD<>(source.executeColumnar(), true, source.schema());
    }

    /** For {@code explain}. */
    @Override
    public String toString() {
      return "source";
    }
  }

  private SourceRDD(RDD<T> rows, boolean columnar, StructType schema) {
    super(rows, rows.elementClassTag());
    this.rows = rows;
    this.columnar = columnar;
    this.schema = schema;
  }

  static <R> R with(Input input, Supplier<R> computation) {
    INPUT.set(input);
    try {
      return computation.get();
    } finally {
      INPUT.remove();
    }
  }

  @Override
  public Partition[] getPartitions() {
    return rows.partitions();
  }

  @Override
  @SuppressWarnings("unchecked") // a source has rows, or batches of columns
  public Iterator<T> compute(Partition split, TaskContext task) {
    Input input = INPUT.get();
    if (input == null) {
      return rows.iterator(split, task);
    }
    Source source = new Source(own -> byRow(rows.iterator(split, own)), schema);
    Iterator<InternalRow> given = input.read(source);
    return (Iterator<T>) (columnar ? byColumns(given, schema) : given);
  }

  @SuppressWarnings("unchecked")
  private Iterator<InternalRow> byRow(Iterator<T> all) {
    return columnar
        ? ((Iterator<ColumnarBatch>) all)
            .flatMap(batch -> CollectionConverters.asScala(batch.rowIterator()))
        : (Iterator<InternalRow>) all;
  }

  /** Batches of one row each: a stage reads the whole batch when it takes it. */
  static Iterator<ColumnarBatch> byColumns(Iterator<InternalRow> all, StructType schema) {
    StructType vectors = (StructType) vectors(schema);
    RowToColumnConverter converter = new RowToColumnConverter(vectors);
    return all.map(
        row -> {
          OnHeapColumnVector[] columns = OnHeapColumnVector.allocateColumns(1, vectors);
          converter.convert(row, columns);
          return new ColumnarBatch(columns, 1);
        });
  }

  /** Types whose vectors hold values of types that Spark's converter lacks. */
  private static DataType vectors(DataType type) {
    return type.transformRecursively(Function$.MODULE$.unlift(SourceRDD::vector));
  }

  private static Option<DataType> vector(DataType type) {
    DataType other = null;
    if (type instanceof StringType) {
      other = DataTypes.StringType; // of any collation
    } else if (type instanceof NullType) {
      other = DataTypes.BooleanType;
    } else if (type instanceof UserDefinedType<?> own) {
      other = vectors(own.sqlType());
    } else if (type.typeName().startsWith("time(")) {
      other = DataTypes.LongType; // nanoseconds
    }
    return Option.apply(other);
  }
}
