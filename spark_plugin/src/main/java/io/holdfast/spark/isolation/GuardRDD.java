package io.holdfast.spark.isolation;

import io.holdfast.spark.HoldfastPlugin;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest;
import io.holdfast.spark.store.Replay;
import java.util.ArrayList;
import java.util.List;
import java.util.Set;
import org.apache.spark.Dependency;
import org.apache.spark.OneToOneDependency;
import org.apache.spark.Partition;
import org.apache.spark.SparkContext;
import org.apache.spark.TaskContext;
import org.apache.spark.rdd.RDD;
import org.apache.spark.sql.catalyst.InternalRow;
import org.apache.spark.sql.execution.streaming.operators.stateful.StateStoreWriter;
import scala.collection.AbstractIterator;
import scala.collection.Iterator;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;
import scala.reflect.ClassTag$;

/** The rows of a guarded stage, of the batches whose input is pending first. */
final class GuardRDD extends RDD<InternalRow> {
  private static final long serialVersionUID = 1L;

  private final RDD<InternalRow> stage;
  private final List<RDD<InternalRow>> inputs;
  private final List<RDD<InternalRow>> passes;
  private final GuardKey key;
  private final ParkTask parking;

  /** Partitions whose tasks ask first. Each stage attempt takes what the driver knows then. */
  private final Set<Integer> suspects;

  private final transient Guard guard;

  GuardRDD(
      SparkContext spark,
      RDD<InternalRow> stage,
      List<RDD<InternalRow>> inputs,
      List<RDD<InternalRow>> passes,
      Guard guard,
      StateStoreWriter operator,
      GuardedBatch batch) {
    super(spark, dependencies(stage, inputs, passes), ClassTag$.MODULE$.apply(InternalRow.class));
    this.stage = stage;
    this.inputs = inputs;
    this.passes = passes;
    this.guard = guard;
    key = guard.key();
    parking = ParkTask.of(guard, operator);
    suspects = batch.suspects;
  }

  private static Seq<Dependency<?>> dependencies(
      RDD<InternalRow> stage, List<RDD<InternalRow>> inputs, List<RDD<InternalRow>> passes) {
    List<Dependency<?>> all = new ArrayList<>();
    all.add(new OneToOneDependency<>(stage));
    inputs.forEach(input -> all.add(new OneToOneDependency<>(input)));
    passes.forEach(pass -> all.add(new OneToOneDependency<>(pass)));
    return CollectionConverters.asScala(all).toSeq();
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
        boolean pending = guard.passes().get(pass).partitions().contains(i);
        ofPasses[pass] = pending ? passes.get(pass).partitions()[i] : null;
      }
      String[] base = ParkTask.idsOf(guard.state(), i);
      all[i] = new GuardedPartition(i, stage.partitions()[i], ofInputs, ofPasses, base);
    }
    return all;
  }

  @Override
  public Iterator<InternalRow> compute(Partition split, TaskContext task) {
    GuardedPartition own = (GuardedPartition) split;
    boolean again = task.attemptNumber() > 0 || task.stageAttemptNumber() > 0;
    // A task that joins partitions, as after coalesce(), cannot tell which of them failed.
    boolean asks = suspects.contains(own.index()) || again && task.partitionId() == own.index();
    if (!asks) {
      return stage.iterator(own.stage(), task);
    }
    Attempt attempt =
        new Attempt(
            task.stageId(), task.stageAttemptNumber(), own.index(), task.attemptNumber());
    DriverReply.Decision decision =
        HoldfastPlugin.executor()
            .decide(new DriverRequest.Decide(key, attempt, task.taskAttemptId()));
    if (decision.parks()) {
      List<Iterator<InternalRow>> rows = new ArrayList<>();
      for (int input = 0; input < inputs.size(); input++) {
        rows.add(inputs.get(input).iterator(own.inputs()[input], task));
      }
      parking.park(own, rows, decision.conf());
      return scala.collection.Iterator$.MODULE$.empty();
    }
    List<Integer> due = new ArrayList<>();
    for (int pass = 0; pass < passes.size(); pass++) {
      if (own.passes()[pass] != null) {
        due.add(pass);
      }
    }
    if (due.isEmpty()) {
      return stage.iterator(own.stage(), task);
    }
    return new Passes(own, due, task, HoldfastPlugin.executor().beginReplay(task, decision.conf()));
  }

  /** The rows of all passes, one pass after the other. */
  private final class Passes extends AbstractIterator<InternalRow> {
    private final GuardedPartition own;
    private final List<Integer> due;
    private final TaskContext task;
    private final Replay replay;
    private int next;
    private Iterator<InternalRow> current = scala.collection.Iterator$.MODULE$.empty();

    Passes(GuardedPartition own, List<Integer> due, TaskContext task, Replay replay) {
      this.own = own;
      this.due = due;
      this.task = task;
      this.replay = replay;
    }

    @Override
    public boolean hasNext() {
      while (!current.hasNext() && next <= due.size()) {
        current = pass(next++);
      }
      return current.hasNext();
    }

    private Iterator<InternalRow> pass(int number) {
      if (number == due.size()) {
        replay.begin(Replay.LAST);
        return stage.iterator(own.stage(), task);
      }
      int pass = due.get(number);
      replay.begin(pass);
      return passes.get(pass).iterator(own.passes()[pass], task);
    }

    @Override
    public InternalRow next() {
      hasNext();
      return current.next();
    }
  }
}
