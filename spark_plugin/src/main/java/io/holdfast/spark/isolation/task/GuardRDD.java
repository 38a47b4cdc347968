package io.holdfast.spark.isolation.task;

import io.holdfast.spark.executor.HoldfastExecutor;
import io.holdfast.spark.executor.Replay;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import java.util.ArrayList;
import java.util.List;
import java.util.stream.IntStream;
import java.util.stream.Stream;
import org.apache.spark.Dependency;
import org.apache.spark.OneToOneDependency;
import org.apache.spark.Partition;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.StatefulOperatorStateInfo;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/** The rows of a guarded stage of Spark, first from the batches with pending rows. */
public final class GuardRDD extends RDD<InternalRow> {
  private static final long serialVersionUID = 1L;

  private final RDD<InternalRow> stage;
  private final List<RDD<InternalRow>> inputs;
  private final List<RDD<InternalRow>> passes;
  private final List<PendingBatch> pending;

  /** A {@link ParkTask} in bytes, which a task of a healthy partition does not read. */
  private final byte[] parking;

  private final TaskSide side;

  private final transient StatefulOperatorStateInfo state;

  /**
   * A partition of a guarded stage.
   *
   * @param inputs by exchange, its partition
   * @param passes by pass, the partition of its stage; null without pending rows
   * @param base ids of the stores; null before the first batch
   */
  record Split(int index, Partition stage, Partition[] inputs, Partition[] passes, String[] base)
      implements RowsRDD.OwnPartition {}

  /** {@code inputs} are rows by exchange, {@code passes} stage rows by batch with pending rows. */
  public GuardRDD(
      RDD<InternalRow> stage,
      List<RDD<InternalRow>> inputs,
      List<RDD<InternalRow>> passes,
      StatefulOperatorStateInfo state,
      List<PendingBatch> pending,
      ParkTask parking,
      TaskSide side) {
    super(
        stage.context(),
        dependencies(stage, inputs, passes),
        ClassTag$.MODULE$.apply(InternalRow.class));
    this.stage = stage;
    this.inputs = inputs;
    this.passes = passes;
    this.state = state;
    this.pending = pending;
    this.parking = parking.bytes();
    this.side = side;
  }

  private static Seq<Dependency<?>> dependencies(
      RDD<InternalRow> stage, List<RDD<InternalRow>> inputs, List<RDD<InternalRow>> passes) {
    Stream<RDD<InternalRow>> all = Stream.of(List.of(stage), inputs, passes).flatMap(List::stream);
    List<Dependency<?>> found = all.<Dependency<?>>map(OneToOneDependency::new).toList();
    return CollectionConverters.asScala(found).toSeq();
  }

  boolean hasPasses() {
    return !passes.isEmpty();
  }

  @Override
  public Partition[] getPartitions() {
    Partition[] all = new Partition[stage.partitions().length];
    for (int i = 0; i < all.length; i++) {
      int partition = i;
      Partition[] ofInputs =
          inputs.stream().map(input -> input.partitions()[partition]).toArray(Partition[]::new);
      Partition[] ofPasses = new Partition[passes.size()];
      for (int pass = 0; pass < ofPasses.length; pass++) {
        boolean waits = pending.get(pass).ids().containsKey(i);
        ofPasses[pass] = waits ? passes.get(pass).partitions()[i] : null;
      }
      String[] base = ParkTask.idsOf(state, i);
      all[i] = new Split(i, stage.partitions()[i], ofInputs, ofPasses, base);
    }
    return all;
  }

  @Override
  public Iterator<InternalRow> compute(Partition split, TaskContext task) {
    Split own = (Split) split;
    DriverRequest.Decide question = side.question(own.index(), task);
    if (question == null) {
      return stage(own, task);
    }
    HoldfastExecutor executor = HoldfastExecutor.running();
    DriverReply.Decision decision = executor.decide(question);
    Runnable settle = () -> executor.settle(question, null, 0);
    ParkTask parking = ParkTask.read(this.parking);
    if (decision.parks()) {
      List<Iterator<InternalRow>> rows = new ArrayList<>();
      for (int input = 0; input < inputs.size(); input++) {
        rows.add(inputs.get(input).iterator(own.inputs()[input], task));
      }
      parking.park(own.index(), own.base(), rows, decision, settle);
      side.through().add(own.index());
      return scala.collection.Iterator$.MODULE$.empty();
    }
    if (!decision.settles()) {
      return stage(own, task);
    }
    List<Integer> due = new ArrayList<>();
    IntStream.range(0, passes.size()).filter(i -> own.passes()[i] != null).forEach(due::add);
    Replay replay = new Replay(own.index(), decision.conf(), decision.waits(), decision.failure());
    executor.beginReplay(task, replay);
    if (!decision.waits().isEmpty()) {
      Iterator<InternalRow> rows = inputs.get(0).iterator(own.inputs()[0], task);
      due =
          decision.still()
              ? parking.keepAll(own.base()[0], rows, replay)
              : parking.keep(due, pending, rows, replay, task);
    }
    due.add(Replay.LAST);
    Iterator<InternalRow> rows =
        CollectionConverters.asScala(due.iterator())
            .flatMap(
                pass -> {
                  replay.begin(pass);
                  return pass == Replay.LAST
                      ? stage.iterator(own.stage(), task)
                      : passes.get(pass).iterator(own.passes()[pass], task);
                });
    return new AtEnd(
        rows,
        () -> {
          settle.run();
          executor.endReplay(task, replay);
          side.through().add(own.index());
        });
  }

  private Iterator<InternalRow> stage(Split own, TaskContext task) {
    return side.delivered(stage.iterator(own.stage(), task), own.index());
  }
}
