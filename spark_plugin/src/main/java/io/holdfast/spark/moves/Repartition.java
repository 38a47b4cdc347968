package io.holdfast.spark.moves;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.minor.OpensStores;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.sparklog.ViewId;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.util.ArrayList;
import java.util.Iterator;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.TreeMap;
import java.util.UUID;
import java.util.stream.Stream;
import org.apache.hadoop.fs.Path;
import org.apache.spark.Partitioner;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.util.LongAccumulator;
import org.apache.spark.util.SerializableConfiguration;
import scala.Option;
import scala.Tuple2;

/**
 * Writes the state of a committed batch with another number of partitions. A job of Spark reads
 * each old partition once, shuffles its rows, and writes each new partition.
 */
public final class Repartition extends Move {
  private static final class Places extends Partitioner {
    private static final long serialVersionUID = 1L;

    private final int number;

    Places(int number) {
      this.number = number;
    }

    @Override
    public int numPartitions() {
      return number;
    }

    @Override
    public int getPartition(Object key) {
      return (Integer) key;
    }
  }

  /** Keys of a column family, and partitions of an operator, in the check before. */
  private static final int SAMPLED_KEYS = 1_000;

  private static final int SAMPLED_PARTITIONS = 4;

  private final StateStoreConf conf;
  private final List<SplitRows.Source> sources = new ArrayList<>();
  private final List<SplitRows.Source> targets = new ArrayList<>(); // by new partition

  private final LongAccumulator rows;
  private final int to;

  public Repartition(SparkSession session, Plan plan) throws IOException {
    super(session, plan);
    to = Integer.parseInt(plan.changes().get(Batch.PARTITIONS_KEY));
    Batch newest = plan.newest();
    conf = conf(newest.conf(), Map.of());
    rows = session.sparkContext().longAccumulator();
    int from = newest.partitions();
    for (Operator operator : Operator.read(checkpoint, newest.number(), hadoopConf())) {
      add(operator, newest.ids().path(Long.toString(operator.id())), from, to);
    }
  }

  private void add(Operator operator, JsonNode partitions, int from, int to) {
    boolean single = KeyHash.isSingle(operator);
    int old = single ? 1 : from;
    if (partitions.size() != old) {
      throw new UnsupportedStateException(
          String.format(
              "Operator %d (%s) has %d partitions in the commit log of %s, expected %d.",
              operator.id(), operator.name(), partitions.size(), checkpoint, old));
    }
    int place = targets.size();
    for (int partition = 0; partition < old; partition++) {
      List<String> own = new ArrayList<>();
      partitions.path(partition).forEach(id -> own.add(id.asText()));
      sources.add(
          new SplitRows.Source(
              operator, place, old, single ? 1 : to, partition, own.toArray(String[]::new)));
    }
    for (int partition = 0; partition < (single ? 1 : to); partition++) {
      targets.add(sources.get(sources.size() - 1));
    }
  }

  private List<SplitRows.Source> firsts() {
    return sources.stream().filter(one -> one.partition() == 0).toList();
  }

  /** The operators and their numbers of partitions, as JSON. */
  public String operators() throws IOException {
    List<Map<String, Object>> found = new ArrayList<>();
    for (SplitRows.Source one : firsts()) {
      Map<String, Object> shown = new LinkedHashMap<>();
      shown.put("operator", one.operator().id());
      shown.put("name", one.operator().name());
      shown.put("stores", one.operator().stores().size());
      shown.put("partitions", one.from());
      shown.put("new_partitions", one.to());
      found.add(shown);
    }
    return JSON.writeValueAsString(found);
  }

  @Override
  public long partitions() {
    return targets.size();
  }

  public long rows() {
    return rows.sum();
  }

  /** Makes the new partitions views of the old ones. Neither reads nor writes state. */
  public void views() throws IOException {
    List<List<String>> ids = new ArrayList<>();
    for (SplitRows.Source target : targets) {
      ids.add(views(target, ids.size() - target.place()));
    }
    takeOver(conf);
    madeInPlaces(ids);
  }

  /** Takes the ids of the new partitions, by number. */
  private void madeInPlaces(List<List<String>> ids) {
    Map<Long, List<List<String>>> found = new TreeMap<>();
    for (int place = 0; place < ids.size(); place++) {
      found
          .computeIfAbsent(targets.get(place).operator().id(), key -> new ArrayList<>())
          .add(ids.get(place));
    }
    made(found);
  }

  private List<String> views(SplitRows.Source target, int partition) {
    List<String> ids = new ArrayList<>();
    List<Operator.Store> stores = target.operator().stores();
    for (int store = 0; store < stores.size(); store++) {
      Map<Integer, String> parents = new TreeMap<>();
      for (SplitRows.Source source : sources) {
        boolean own = source.operator().id() == target.operator().id();
        if (own && (source.partition() - partition) % target.divisor() == 0) {
          parents.put(source.partition(), source.ids()[store]);
        }
      }
      ids.add(
          new ViewId(
                  plan.newest().number(),
                  target.from(),
                  target.to(),
                  stores.get(store).name(),
                  parents)
              .text());
    }
    return ids;
  }

  /** Each new partition may have rows of so many old partitions, for the worst operator. */
  public int parents() {
    return sources.stream().mapToInt(one -> one.from() / one.divisor()).max().orElse(0);
  }

  public void write() {
    SourceStores stores = stores();
    long version = plan.number();
    List<SplitRows.Source> all = targets;
    // Tasks must not take fields of this object along.
    LongAccumulator read = rows;
    LongAccumulator readBytes = bytes;
    LongAccumulator ended = partitions;
    List<List<String>> ids =
        job(
            spark ->
                spark
                    .parallelize(sources, sources.size())
                    .mapPartitionsToPair(
                        one ->
                            new SplitRows(
                                one.next(), stores, version, Long.MAX_VALUE, read, readBytes))
                    .partitionBy(new Places(all.size()))
                    .mapPartitionsWithIndex(
                        (place, chunks) -> {
                          SplitRows.Source target = all.get(place);
                          List<String> own =
                              write(stores, version, target, place - target.place(), chunks);
                          ended.add(1);
                          return List.of(own).iterator();
                        },
                        true)
                    .collect());
    madeInPlaces(ids);
  }

  /** Throws {@link UnsupportedStateException} if some keys are not where their hash says. */
  public void check() {
    List<SplitRows.Source> some =
        sources.stream().filter(one -> one.partition() < SAMPLED_PARTITIONS).toList();
    SourceStores stores = stores();
    long version = plan.number();
    LongAccumulator read = session.sparkContext().longAccumulator();
    job(
        spark ->
            spark
                .parallelize(some, some.size())
                .mapPartitionsToPair(
                    one -> new SplitRows(one.next(), stores, version, SAMPLED_KEYS, read, read))
                .count());
  }

  private SourceStores stores() {
    return new SourceStores(
        new Path(checkpoint, "state").toString(),
        conf,
        new SerializableConfiguration(hadoopConf()),
        UUID.randomUUID());
  }

  /** Sets the number of partitions in Spark's descriptions of operators, for the state reader. */
  public void describe() throws IOException {
    for (SplitRows.Source one : firsts()) {
      Path file = new Path(descriptions(one), "metadata");
      describe(file, file);
    }
  }

  /** Describes operators whose descriptions have versions for the batch that is published. */
  @Override
  void beforeCommit() throws IOException {
    for (SplitRows.Source one : firsts()) {
      Path versions = new Path(descriptions(one), "v2");
      OptionalLong described =
          Operator.numbers(versions.getFileSystem(hadoopConf()), versions)
              .filter(version -> version <= plan.newest().number())
              .max();
      if (described.isPresent()) {
        describe(
            new Path(versions, Long.toString(described.getAsLong())),
            new Path(versions, Long.toString(plan.number())));
      }
    }
  }

  @Override
  void clean() {}

  private Path descriptions(SplitRows.Source source) {
    return new Path(checkpoint, "state/" + source.operator().id() + "/_metadata");
  }

  private void describe(Path file, Path target) throws IOException {
    String text;
    try {
      text = Batch.text(file, hadoopConf());
    } catch (FileNotFoundException none) {
      // The descriptions of this operator have versions, or it is a limit, which has none.
      return;
    }
    int begin = text.indexOf('\n') + 1;
    JsonNode description = JSON.readTree(text.substring(begin));
    for (JsonNode store : description.path("stateStoreInfo")) {
      ((ObjectNode) store).put("numPartitions", to);
    }
    String changed = text.substring(0, begin) + JSON.writeValueAsString(description);
    if (!changed.equals(text)) {
      create(target, changed, true);
    }
  }

  /** Writes the stores of one new partition, and returns their ids. */
  private static List<String> write(
      SourceStores stores,
      long version,
      SplitRows.Source target,
      int partition,
      Iterator<Tuple2<Integer, byte[]>> chunks) {
    Operator operator = target.operator();
    int number = operator.stores().size();
    StateStoreProvider[] providers = new StateStoreProvider[number];
    RowWriter[] writers = new RowWriter[number];
    try {
      for (int store = 0; store < number; store++) {
        providers[store] = stores.provider(operator, store, partition);
        StateStore writing = ((OpensStores) providers[store]).open(version, Option.empty(), true);
        writers[store] = new RowWriter(writing);
        SourceStores.create(writing, operator.stores().get(store));
      }
      while (chunks.hasNext()) {
        RowChunks.write(chunks.next()._2(), operator, writers);
      }
      return Stream.of(writers).map(RowWriter::commit).toList();
    } finally {
      for (int store = 0; store < number && providers[store] != null; store++) {
        if (writers[store] != null) {
          writers[store].close();
        }
        providers[store].close();
      }
    }
  }
}
