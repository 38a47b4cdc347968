import java.util.ArrayList;
import java.util.List;
import java.util.UUID;
import java.util.function.Consumer;
import java.util.function.Function;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.SparkThrowable;
import org.apache.spark.TaskContext;
import org.apache.spark.TaskContext$;
import org.apache.spark.TaskContextImpl;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.RangeKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.ReadStateStore;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreIterator;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.execution.streaming.state.UnsafeRowPair;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/** Calls state store providers as an operator would, or should not, and reports the results. */
public final class StoreCalls {
  private static final String DEFAULT = StateStore.DEFAULT_COL_FAMILY_NAME();
  private static final StructType KEY =
      new StructType().add("a", DataTypes.LongType).add("b", DataTypes.LongType);
  private static final StructType VALUE = new StructType().add("v", DataTypes.LongType);

  private static final KeyStateEncoderSpec PLAIN = new NoPrefixKeyStateEncoderSpec(KEY);
  private static final KeyStateEncoderSpec PREFIX = new PrefixKeyScanStateEncoderSpec(KEY, 1);
  private static final KeyStateEncoderSpec RANGE =
      new RangeKeyScanStateEncoderSpec(
          KEY, CollectionConverters.asScala(List.<Object>of(0)).toSeq());

  private SparkSession session;
  private String folder;
  private String group;
  private int stores;
  private final List<String> said = new ArrayList<>();

  private interface Case {
    Object run() throws Exception;
  }

  private final class World {
    private final StateStoreId id;
    private final boolean columns;
    private final KeyStateEncoderSpec spec;
    StateStoreProvider provider;

    World(boolean columns, KeyStateEncoderSpec spec) {
      id = new StateStoreId(folder, 0, stores++, "default");
      this.columns = columns;
      this.spec = spec;
      provider = provider();
    }

    StateStoreProvider provider() {
      return provider(hadoopConf());
    }

    StateStoreProvider provider(Configuration hadoopConf) {
      return provider(hadoopConf, columns);
    }

    StateStoreProvider provider(Configuration hadoopConf, boolean severalValues) {
      StateStoreConf conf = conf();
      StateStoreProvider made = StateStoreProvider$.MODULE$.create(conf.providerClass());
      made.init(
          id, KEY, VALUE, spec, columns, conf, hadoopConf, severalValues, Option.empty());
      return made;
    }

    StateStore fresh() {
      return store(0, null);
    }

    StateStore store(long version, String checkpointId) {
      return provider.getStore(version, Option.apply(checkpointId), false, false);
    }

    ReadStateStore reader(long version, String checkpointId) {
      return provider.getReadStore(version, Option.apply(checkpointId));
    }
  }

  /** Returns the result of a call on a version, and releases the version. */
  private static Object on(ReadStateStore store, Function<ReadStateStore, Object> call) {
    try {
      return call.apply(store);
    } finally {
      store.release();
    }
  }

  private static String commit(StateStore store) {
    store.commit();
    return store.getStateStoreCheckpointInfo().stateStoreCkptId().get();
  }

  private StateStoreConf conf() {
    return new StateStoreConf(
        session.sessionState().conf(), scala.collection.immutable.Map$.MODULE$.empty());
  }

  private Configuration hadoopConf() {
    Configuration conf = session.sessionState().newHadoopConf();
    conf.set("sql.streaming.runId", UUID.randomUUID().toString());
    return conf;
  }

  private static UnsafeRow row(long... fields) {
    UnsafeRowWriter writer = new UnsafeRowWriter(fields.length);
    writer.resetRowWriter();
    for (int i = 0; i < fields.length; i++) {
      writer.write(i, fields[i]);
    }
    return writer.getRow().copy();
  }

  private static void create(StateStore store, String name) {
    store.createColFamilyIfAbsent(name, KEY, VALUE, PLAIN, false, false);
  }

  private static void createLists(StateStore store, String name) {
    store.createColFamilyIfAbsent(name, KEY, VALUE, PLAIN, true, false);
  }

  private static List<Object> values(Iterator<UnsafeRow> rows) {
    List<Object> found = new ArrayList<>();
    while (rows.hasNext()) {
      UnsafeRow row = rows.next();
      found.add(row == null ? null : row.getLong(0));
    }
    return found;
  }

  private static List<Object> pairs(StateStoreIterator<UnsafeRowPair> rows) {
    List<Object> found = new ArrayList<>();
    while (rows.hasNext()) {
      UnsafeRowPair pair = rows.next();
      UnsafeRow key = pair.key();
      found.add(key.getLong(0) + "/" + key.getLong(1) + "=" + pair.value().getLong(0));
    }
    rows.close();
    return found;
  }

  private static Object valueOf(UnsafeRow row) {
    return row == null ? null : row.getLong(0);
  }

  private void check(String name, Case one) {
    String outcome;
    try {
      outcome = "returned\t" + one.run() + "\t";
    } catch (Throwable e) {
      String condition = e instanceof SparkThrowable known ? known.getCondition() : "";
      String message = String.valueOf(e.getMessage()).lines().findFirst().orElse("");
      outcome = e.getClass().getName() + "\t" + condition + "\t" + message;
    }
    said.add(group + "\t" + name + "\t" + outcome);
  }

  /** A line for each case: group, name, exception or "returned", condition or value, message. */
  public String run(SparkSession spark, String state) {
    begin(spark, state);
    in("versions", this::versions);
    in("rows", this::rows);
    in("sessions", this::sessions);
    in("readers", this::readers);
    in("families", this::families);
    in("families of versions", this::familiesOfVersions);
    in("multiGet", this::multiGet);
    in("tasks", this::tasks);
    return String.join("\n", said);
  }

  private void begin(SparkSession spark, String state) {
    session = spark;
    folder = state;
    said.clear();
  }

  private void in(String name, Runnable cases) {
    group = name;
    cases.run();
  }

  private void versions() {
    check("version -1", () -> new World(false, PLAIN).store(-1, null));
    check("read version -1", () -> new World(false, PLAIN).reader(-1, null));
    check("version -1 of a store with families", () -> new World(true, PLAIN).store(-1, null));
    check("a version without an id", () -> new World(false, PLAIN).store(7, null));
    check("an id that no store gave", () -> new World(false, PLAIN).store(7, "no-such-id"));
    check(
        "a version with the id of another",
        () -> {
          World world = new World(false, PLAIN);
          StateStore store = world.fresh();
          store.put(row(1, 1), row(1), DEFAULT);
          String id = commit(store);
          return on(world.provider().getReadStore(5, Option.apply(id)), store5 -> "opened");
        });
  }

  private void rows() {
    for (boolean columns : new boolean[] {false, true}) {
      String kind = columns ? " in a family" : "";
      String family = columns ? "numbers" : DEFAULT;
      World world = new World(columns, PLAIN);
      StateStore store = world.fresh();
      if (columns) {
        create(store, family);
      }
      UnsafeRow key = row(1, 1);
      check("get null" + kind, () -> store.get(null, family));
      check("keyExists null" + kind, () -> store.keyExists(null, family));
      check("valuesIterator null" + kind, () -> store.valuesIterator(null, family));
      check("put null key" + kind, () -> put(store, null, row(1), family));
      check("put null value" + kind, () -> put(store, key, null, family));
      check("remove null" + kind, () -> remove(store, null, family));
      check("multiGet null" + kind, () -> store.multiGet(null, family));
      check(
          "multiGet with a null" + kind,
          () -> store.multiGet(new UnsafeRow[] {key, null}, family));
      check("merge without lists" + kind, () -> merge(store, key, row(1), family));
      check("values of a family without lists" + kind, () -> store.valuesIterator(key, family));
      check(
          "scan values of a family without lists" + kind,
          () -> store.iteratorWithMultiValues(family));
      check("prefix scan without prefix" + kind, () -> store.prefixScan(row(1), family));
      check(
          "prefix scan of values without prefix" + kind,
          () -> store.prefixScanWithMultiValues(row(1), family));
      check(
          "range scan without order" + kind,
          () -> store.rangeScan(Option.apply(key), Option.empty(), family));
      check(
          "range scan of values without order" + kind,
          () -> store.rangeScanWithMultiValues(Option.apply(key), Option.empty(), family));
      check("deleteRange without order" + kind, () -> deleteRange(store, key, key, family));
      check("deleteRange from null" + kind, () -> deleteRange(store, null, key, family));
      check("deleteRange to null" + kind, () -> deleteRange(store, key, null, family));
      store.abort();
    }
    StateStore lists = new World(true, PLAIN).fresh();
    createLists(lists, "lists");
    UnsafeRow key = row(1, 1);
    check("merge null key", () -> merge(lists, null, row(1), "lists"));
    check("merge null value", () -> merge(lists, key, null, "lists"));
    check("mergeList null", () -> mergeList(lists, key, null));
    check("mergeList with a null", () -> mergeList(lists, key, new UnsafeRow[] {row(1), null}));
    check("mergeList null key", () -> mergeList(lists, null, new UnsafeRow[] {row(1)}));
    check("putList null", () -> putList(lists, key, null));
    check("putList with a null", () -> putList(lists, key, new UnsafeRow[] {row(1), null}));
    check("putList null key", () -> putList(lists, null, new UnsafeRow[] {row(1)}));
    check("what a refused list left", () -> values(lists.valuesIterator(key, "lists")));
    lists.abort();
    StateStore prefixed = new World(false, PREFIX).fresh();
    check(
        "range scan of prefixed keys",
        () -> prefixed.rangeScan(Option.apply(key), Option.empty(), DEFAULT));
    check("deleteRange of prefixed keys", () -> deleteRange(prefixed, key, key, DEFAULT));
    check("prefix scan of prefixed keys", () -> pairs(prefixed.prefixScan(row(1), DEFAULT)));
    prefixed.abort();
    StateStore ordered = new World(false, RANGE).fresh();
    for (long n = 0; n < 5; n++) {
      ordered.put(row(n, 0), row(n), DEFAULT);
    }
    check("prefix scan of ordered keys", () -> pairs(ordered.prefixScan(row(1), DEFAULT)));
    check("deleteRange of ordered keys", () -> deleteRange(ordered, row(1, 0), row(3, 0), DEFAULT));
    check(
        "what deleteRange left",
        () -> pairs(ordered.rangeScan(Option.empty(), Option.empty(), DEFAULT)));
    ordered.abort();
  }

  private static Object put(StateStore store, UnsafeRow key, UnsafeRow value, String family) {
    store.put(key, value, family);
    return "done";
  }

  private static Object remove(StateStore store, UnsafeRow key, String family) {
    store.remove(key, family);
    return "done";
  }

  private static Object merge(StateStore store, UnsafeRow key, UnsafeRow value, String family) {
    store.merge(key, value, family);
    return "done";
  }

  private static Object mergeList(StateStore store, UnsafeRow key, UnsafeRow[] values) {
    store.mergeList(key, values, "lists");
    return "done";
  }

  private static Object putList(StateStore store, UnsafeRow key, UnsafeRow[] values) {
    store.putList(key, values, "lists");
    return "done";
  }

  private static Object deleteRange(StateStore store, UnsafeRow from, UnsafeRow to, String family) {
    store.deleteRange(from, to, family);
    return "done";
  }

  private static Object abort(ReadStateStore store) {
    store.abort();
    return "done";
  }

  private static Object release(ReadStateStore store) {
    store.release();
    return "done";
  }

  private void sessions() {
    StateStore open = new World(false, PLAIN).fresh();
    check("metrics before commit", open::metrics);
    check("id before commit", open::getStateStoreCheckpointInfo);
    check("release a session", () -> release(open));
    open.abort();
    for (String end : List.of("commit", "abort")) {
      World world = new World(true, PLAIN);
      StateStore store = world.fresh();
      create(store, "numbers");
      createLists(store, "lists");
      store.put(row(1, 1), row(1), "numbers");
      if (end.equals("commit")) {
        store.commit();
      } else {
        store.abort();
      }
      String after = " after " + end;
      UnsafeRow key = row(1, 1);
      check("hasCommitted" + after, store::hasCommitted);
      check("get" + after, () -> store.get(key, "numbers"));
      check("get of the default family" + after, () -> store.get(key, DEFAULT));
      check("keyExists" + after, () -> store.keyExists(key, "numbers"));
      check("multiGet" + after, () -> store.multiGet(new UnsafeRow[] {key}, "numbers"));
      check("put" + after, () -> put(store, key, row(1), "numbers"));
      check("put null" + after, () -> put(store, null, null, "numbers"));
      check("remove" + after, () -> remove(store, key, "numbers"));
      check("merge" + after, () -> merge(store, key, row(1), "lists"));
      check("mergeList" + after, () -> mergeList(store, key, new UnsafeRow[] {row(1)}));
      check("putList" + after, () -> putList(store, key, new UnsafeRow[] {row(1)}));
      check("valuesIterator" + after, () -> store.valuesIterator(key, "lists"));
      check("iterator" + after, () -> store.iterator("numbers"));
      check("iteratorWithMultiValues" + after, () -> store.iteratorWithMultiValues("lists"));
      check("prefixScan" + after, () -> store.prefixScan(key, "numbers"));
      check(
          "rangeScan" + after,
          () -> store.rangeScan(Option.apply(key), Option.empty(), "numbers"));
      check("deleteRange" + after, () -> deleteRange(store, key, key, "numbers"));
      check("create a family" + after, () -> created(store, "late"));
      check("metrics" + after, () -> store.metrics() != null);
      check("checkpoint info" + after, () -> store.getStateStoreCheckpointInfo() != null);
      check("commit" + after, store::commit);
      check("abort" + after, () -> abort(store));
    }
    World world = new World(false, PLAIN);
    StateStore store = world.fresh();
    store.put(row(1, 1), row(1), DEFAULT);
    StateStoreIterator<UnsafeRowPair> iterator = store.iterator(DEFAULT);
    store.commit();
    // Complete mode makes its iterator before it commits.
    check("go on with an iterator after commit", () -> pairs(iterator));
  }

  private static Object created(StateStore store, String name) {
    create(store, name);
    return "done";
  }

  private void readers() {
    World world = new World(false, PLAIN);
    StateStore store = world.fresh();
    store.put(row(1, 1), row(1), DEFAULT);
    String id = commit(store);
    UnsafeRow key = row(1, 1);
    ReadStateStore released = world.reader(1, id);
    check("read", () -> valueOf(released.get(key, DEFAULT)));
    released.release();
    check("get after release", () -> released.get(key, DEFAULT));
    check("iterator after release", () -> released.iterator(DEFAULT));
    check("release twice", () -> release(released));
    check("abort after release", () -> abort(released));
    ReadStateStore aborted = world.reader(1, id);
    aborted.abort();
    check("get after abort of a reader", () -> aborted.get(key, DEFAULT));
    check("abort a reader twice", () -> abort(aborted));
    ReadStateStore first = world.reader(1, id);
    StateStore second = world.provider.upgradeReadStoreToWriteStore(
        first, 1, Option.apply(id), false);
    second.put(key, row(2), DEFAULT);
    check("a reader that became a session", () -> valueOf(first.get(key, DEFAULT)));
    second.commit();
    check("a reader whose session committed", () -> first.get(key, DEFAULT));
  }

  private void families() {
    World without = new World(false, PLAIN);
    check("lists where there are no families", () -> without.provider(hadoopConf(), true));
    StateStore plain = without.fresh();
    UnsafeRow key = row(1, 1);
    check("create a family where there are none", () -> created(plain, "numbers"));
    check("remove a family where there are none", () -> plain.removeColFamilyIfExists("numbers"));
    check("get from a family where there are none", () -> plain.get(key, "numbers"));
    check("put to a family where there are none", () -> put(plain, key, row(1), "numbers"));
    plain.abort();
    StateStore store = new World(true, PLAIN).fresh();
    for (String name : List.of("", " a", "a ", DEFAULT, "$reserved", "_internal", "a b")) {
      check("create '" + name + "'", () -> created(store, name));
      check("remove '" + name + "'", () -> store.removeColFamilyIfExists(name));
      check("get from '" + name + "'", () -> store.get(key, name));
    }
    for (String name : List.of("", DEFAULT, "$internal")) {
      check(
          "create internal '" + name + "'",
          () -> {
            store.createColFamilyIfAbsent(name, KEY, VALUE, PLAIN, false, true);
            return "done";
          });
      check("put to internal '" + name + "'", () -> put(store, key, row(1), name));
    }
    check("get from an absent family", () -> store.get(key, "absent"));
    check("keyExists in an absent family", () -> store.keyExists(key, "absent"));
    check("multiGet of an absent family", () -> store.multiGet(new UnsafeRow[0], "absent"));
    check("put to an absent family", () -> put(store, key, row(1), "absent"));
    check("put null to an absent family", () -> put(store, key, null, "absent"));
    check("remove from an absent family", () -> remove(store, key, "absent"));
    check("merge to an absent family", () -> merge(store, key, row(1), "absent"));
    check("iterator of an absent family", () -> store.iterator("absent"));
    check("values in an absent family", () -> store.valuesIterator(key, "absent"));
    check("prefix scan of an absent family", () -> store.prefixScan(key, "absent"));
    check(
        "range scan of an absent family",
        () -> store.rangeScan(Option.empty(), Option.empty(), "absent"));
    check("deleteRange of an absent family", () -> deleteRange(store, key, key, "absent"));
    check("remove an absent family", () -> store.removeColFamilyIfExists("absent"));
    create(store, "numbers");
    put(store, key, row(1), "numbers");
    check("remove a family", () -> store.removeColFamilyIfExists("numbers"));
    check("get from a removed family", () -> store.get(key, "numbers"));
    create(store, "numbers");
    check("get from a family that was made again", () -> store.get(key, "numbers"));
    store.abort();
  }

  private void familiesOfVersions() {
    World world = new World(true, PLAIN);
    StateStore store = world.fresh();
    UnsafeRow key = row(1, 1);
    create(store, "numbers");
    create(store, "empty");
    put(store, key, row(1), "numbers");
    String one = commit(store);
    check("families of version 1", () -> names(world.reader(1, one)));
    check(
        "a family at version 1",
        () -> on(world.reader(1, one), store1 -> valueOf(store1.get(key, "numbers"))));
    check(
        "a family of version 1 at version 0",
        () -> on(world.reader(0, null), store0 -> valueOf(store0.get(key, "numbers"))));
    check(
        "scan a family of version 1 at version 0",
        () -> on(world.reader(0, null), store0 -> pairs(store0.iterator("empty"))));
    check("families of version 0", () -> names(world.reader(0, null)));
    StateStoreProvider other = world.provider();
    check(
        "families of version 1 elsewhere",
        () -> names(other.getReadStore(1, Option.apply(one))));
    check(
        "remove a family without entries elsewhere",
        () -> {
          StateStore session = other.getStore(1, Option.apply(one), false, false);
          boolean removed = session.removeColFamilyIfExists("empty");
          session.abort();
          return removed;
        });
    StateStore next = world.store(1, one);
    check("remove a family of version 1", () -> next.removeColFamilyIfExists("numbers"));
    String two = commit(next);
    check("families of version 2", () -> names(world.reader(2, two)));
    check(
        "a family removed in version 2",
        () -> on(world.reader(2, two), store2 -> valueOf(store2.get(key, "numbers"))));
    // The operator describes its families before it uses them.
    StateStore again = world.store(1, one);
    create(again, "numbers");
    check("a family removed in version 2 at version 1", () -> valueOf(again.get(key, "numbers")));
    create(again, "aborted");
    again.abort();
    StateStore last = world.store(1, one);
    check("a family that an abort took back", () -> last.get(key, "aborted"));
    last.abort();
  }

  private static String names(ReadStateStore store) {
    List<String> names = new ArrayList<>(CollectionConverters.asJava(store.allColumnFamilyNames()));
    names.sort(null);
    store.release();
    return String.join(",", names);
  }

  private void multiGet() {
    for (boolean columns : new boolean[] {false, true}) {
      String kind = columns ? " in a family" : "";
      String family = columns ? "numbers" : DEFAULT;
      World world = new World(columns, PLAIN);
      StateStore store = world.fresh();
      if (columns) {
        create(store, family);
      }
      UnsafeRow[] keys = {row(3, 0), row(1, 0), row(9, 9), row(1, 0)};
      check("multiGet of nothing" + kind, () -> values(store.multiGet(keys, family)));
      for (long n = 0; n < 5; n++) {
        put(store, row(n, 0), row(10 * n), family);
      }
      check("multiGet" + kind, () -> values(store.multiGet(keys, family)));
      check("multiGet without keys" + kind, () -> values(store.multiGet(new UnsafeRow[0], family)));
      store.abort();
    }
  }

  private void tasks() {
    World world = new World(false, PLAIN);
    check(
        "load in a task that failed",
        () -> loadIn(world, task -> task.markTaskFailed(failure())));
    check("the store after it", () -> abort(world.fresh()));
    check(
        "load in a task that is over",
        () ->
            loadIn(
                world,
                task -> {
                  task.markTaskFailed(failure());
                  task.markTaskCompleted(Option.apply(failure()));
                }));
    check("the store after that", () -> abort(world.fresh()));
  }

  private static RuntimeException failure() {
    return new RuntimeException("the task failed meanwhile");
  }

  private static Object loadIn(World world, Consumer<TaskContextImpl> before) {
    TaskContext outside = TaskContext.get();
    TaskContextImpl task = TaskContext$.MODULE$.empty();
    TaskContext$.MODULE$.setTaskContext(task);
    try {
      before.accept(task);
      return world.fresh();
    } finally {
      TaskContext$.MODULE$.setTaskContext(outside);
    }
  }

  /** Reads the values of two keys one after the other before it looks at them. */
  public String twoRows(SparkSession spark, String state) {
    begin(spark, state);
    StateStore store = new World(false, PLAIN).fresh();
    store.put(row(1, 1), row(10), DEFAULT);
    store.put(row(2, 2), row(20), DEFAULT);
    UnsafeRow first = store.get(row(1, 1), DEFAULT);
    UnsafeRow second = store.get(row(2, 2), DEFAULT);
    store.abort();
    return valueOf(first) + "," + valueOf(second);
  }

  /** A provider without the configuration of Hadoop, or without the run of a query in it. */
  public String withoutConfiguration(SparkSession spark, String state) {
    begin(spark, state);
    group = "configuration";
    World world = new World(false, PLAIN);
    check("none", () -> world.provider(null));
    check("without a run", () -> world.provider(session.sessionState().newHadoopConf()));
    return String.join("\n", said);
  }
}
