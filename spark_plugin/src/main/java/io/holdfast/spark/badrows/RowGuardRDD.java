package io.holdfast.spark.badrows;

import io.holdfast.spark.executor.HoldfastExecutor;
import io.holdfast.spark.isolation.task.AtEnd;
import io.holdfast.spark.isolation.task.TaskSide;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import java.util.function.Function;
import java.util.function.LongConsumer;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import scala.collection.Iterator;

/** The rows of a stage behind a source, without those of bad rows. */
final class RowGuardRDD extends RDD<InternalRow> {
  private static final long serialVersionUID = 1L;

  private final RDD<InternalRow> stage;
  private final TaskSide side;
  private final boolean readsAhead;

  RowGuardRDD(RDD<InternalRow> stage, TaskSide side, boolean readsAhead) {
    super(stage, stage.elementClassTag());
    this.stage = stage;
    this.side = side;
    this.readsAhead = readsAhead;
  }

  @Override
  public Partition[] getPartitions() {
    return stage.partitions();
  }

  @Override
  public Iterator<InternalRow> compute(Partition split, TaskContext task) {
    int partition = split.index();
    Function<TaskContext, Iterator<InternalRow>> rows = own -> stage.iterator(split, own);
    DriverRequest.Decide question = side.question(partition, task);
    if (question == null) {
      return side.delivered(rows.apply(task), partition);
    }
    HoldfastExecutor executor = HoldfastExecutor.running();
    DriverReply.RowDecision decision = executor.decideRows(question);
    LeftOut leftOut = new LeftOut(decision.named(), task);
    LongConsumer settle = read -> executor.settle(question, leftOut.toJson(), read);
    if (decision.searches()) {
      Runnable tooMany = () -> settle.accept(0);
      new RowSearch(rows, task, readsAhead, leftOut, decision.rowsMax(), tooMany).run();
    }
    if (leftOut.isEmpty()) {
      return side.delivered(rows.apply(task), partition);
    }
    Iterator<InternalRow> good = SourceInput.with(leftOut, () -> rows.apply(task));
    return side.delivered(new AtEnd(good, () -> settle.accept(leftOut.read())), partition);
  }
}
