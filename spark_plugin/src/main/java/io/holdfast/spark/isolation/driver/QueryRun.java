package io.holdfast.spark.isolation.driver;

import com.fasterxml.jackson.databind.JsonNode;
import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.rpc.DriverReply;
import io.holdfast.spark.rpc.DriverRequest.Part;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.UUID;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ConcurrentHashMap;
import java.util.concurrent.Executor;
import java.util.concurrent.atomic.AtomicBoolean;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.util.SerializableConfiguration;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Does what the core's machine decides in one run of a query, while no thread holds a lock. */
public final class QueryRun {
  private static final Logger LOG = LoggerFactory.getLogger(QueryRun.class);

  /** Writes the dead letters of a batch, from its marker. */
  public interface Publisher {
    boolean has(Configuration conf, long batch);

    /** Returns how many there are. */
    long publish(Configuration conf, long batch, String marker);
  }

  final UUID id;
  private final Path checkpoint;
  private final Path markers;
  private final Publisher letters; // null unless rows of a source are set aside
  private final SerializableConfiguration conf;
  private final SparkEvents events;
  private final Executor writers;
  private final AtomicBoolean warned = new AtomicBoolean();

  /** The sink waits like a part. */
  static final Part OF_SINK = new Part(null, 0);

  /** Attempts and the sink wait for these answers. */
  private final Map<Part, CompletableFuture<DriverReply>> calls = new ConcurrentHashMap<>();

  /** Null until the first batch runs, because a plan that is only shown has no folder. */
  private Machine machine;

  /** The marker that is being written. */
  private CompletableFuture<Void> writing = CompletableFuture.completedFuture(null);

  private boolean ended;

  /** The newest batch with dead letters, and how many it has. */
  private volatile Map.Entry<Long, Long> published = Map.entry(-1L, 0L);
  volatile boolean showsMetrics; // of parked partitions

  /** {@code conf} has Hadoop's settings of the session; the {@code writers} write markers. */
  QueryRun(
      UUID id,
      Path checkpoint,
      Path markers,
      Configuration conf,
      Publisher letters,
      SparkEvents events,
      Executor writers) {
    this.id = id;
    this.checkpoint = checkpoint;
    this.markers = markers;
    this.letters = letters;
    this.conf = new SerializableConfiguration(conf);
    this.events = events;
    this.writers = writers;
    conf.set(HoldfastConf.RUN_ID_KEY, id.toString());
  }

  public Path checkpoint() {
    return checkpoint;
  }

  public Configuration conf() {
    return conf.value();
  }

  /** Dead letters that this run wrote of a batch. */
  public long publishedRows(long batch) {
    return published.getKey() == batch ? published.getValue() : 0;
  }

  public boolean mayWarn() {
    return !warned.getAndSet(true);
  }

  private synchronized Machine machine() {
    if (machine == null) {
      machine =
          letters == null
              ? Machine.ofPartitions(id.toString(), checkpoint, conf())
              : Machine.ofRows(markers, conf());
    }
    return machine;
  }

  /** The times of a batch with pending rows. */
  public Map<String, Long> timesOf(long batch) {
    Marker marker = machine().marker(batch);
    if (marker == null) {
      throw new HoldfastException(
          String.format(
              "Rows of batch %s are parked in %s, but %s/isolation/%s is gone: without it the rows"
                  + " cannot be processed as in their own batch. Put the file back from a copy.",
              batch, checkpoint, checkpoint, batch));
    }
    return marker.times();
  }

  /** When the first partition was parked in a batch. */
  long parkedAtMs(long batch) {
    return machine().marker(batch).parked().values().stream()
        .filter(parked -> !parked.waits().isEmpty())
        .mapToLong(Marker.Parked::atMs)
        .min()
        .orElse(0);
  }

  /** Another run continues with the checkpoint: writes nothing any more. */
  void end() {
    CompletableFuture<Void> last;
    synchronized (this) {
      ended = true;
      last = writing;
    }
    last.exceptionally(failure -> null).join();
  }

  CompletableFuture<DriverReply> call(Part part) {
    return calls.computeIfAbsent(part, call -> new CompletableFuture<>());
  }

  void reply(Part part, DriverReply reply) {
    CompletableFuture<DriverReply> answer = calls.remove(part);
    if (answer != null) {
      answer.complete(reply);
    }
  }

  void tell(SparkSide side, Object fact) {
    for (JsonNode action : machine().tell(side.key.batch(), side.suspectsThrough(), fact)) {
      action.properties().forEach(named -> perform(side, named.getKey(), named.getValue()));
    }
  }

  /** Writes the dead letters of committed batches, up to the newest one that has them. */
  public static void publish(
      Path markers, Configuration conf, long committed, Publisher letters) {
    Machine machine = Machine.ofRows(markers, conf);
    machine.batches.headSet(committed, true).descendingSet().stream()
        .takeWhile(batch -> !letters.has(conf, batch))
        .sorted()
        .forEach(
            batch -> {
              for (JsonNode action : machine.tell(batch, List.of(), "Committed")) {
                publish(action.get("Publish"), conf, letters);
              }
            });
  }

  private static Map.Entry<Long, Long> publish(
      JsonNode marker, Configuration conf, Publisher letters) {
    long batch = marker.get(0).asLong();
    return Map.entry(batch, letters.publish(conf, batch, marker.get(1).asText()));
  }

  /** Called when a batch is in the commit log. */
  void committed(long batch) {
    if (letters == null) {
      return;
    }
    for (JsonNode action : machine().tell(batch, List.of(), "Committed")) {
      action.properties().forEach(named -> perform(null, named.getKey(), named.getValue()));
    }
  }

  private void perform(SparkSide side, String kind, JsonNode what) {
    switch (kind) {
      case "Answer" -> reply(part(what.get(0)), decision(what.get(1)));
      case "Settled" -> reply(part(what), new DriverReply.Done());
      case "Refuse" -> reply(part(what.get(0)), new DriverReply.Refused(what.get(1).asText()));
      case "Sealed" ->
          reply(
              OF_SINK,
              what.isNull() ? new DriverReply.Done() : new DriverReply.Refused(what.asText()));
      case "Write" -> write(side, what.get(0).asLong(), what.get(1).asText());
      case "Delete" -> machine().delete(what.asLong());
      case "Publish" -> published = publish(what, conf(), letters);
      case "Kill" -> what.forEach(task -> events.kill(task.asLong()));
      case "Wait" -> events.postInASecond(() -> tell(side, Map.of("Waited", what)));
      case "Suspect" -> what.forEach(partition -> side.suspects().add(partition.asInt()));
      case "ForgetCommits" -> side.forgetCommits(what.asInt());
      case "Show" -> {
        showsMetrics = !what.isNull();
        side.show(what.asLong());
      }
      case "Warn" -> LOG.warn(what.asText());
      case "Report" -> LOG.error(what.asText());
      case "Fail" -> throw new HoldfastException(what.asText());
      default -> throw new IllegalStateException("The core has no action " + kind);
    }
  }

  private static Part part(JsonNode json) {
    return Machine.JSON.convertValue(json, Part.class);
  }

  private DriverReply decision(JsonNode answer) {
    if (letters != null) {
      return Machine.JSON.convertValue(answer, DriverReply.RowDecision.class);
    }
    List<Integer> waits = new ArrayList<>();
    answer.get("waits").forEach(group -> waits.add(group.asInt()));
    return new DriverReply.Decision(
        answer.get("parks").asBoolean(),
        List.copyOf(waits),
        answer.get("still").asBoolean(),
        answer.get("settles").asBoolean(),
        answer.get("failure").textValue(),
        conf);
  }

  private synchronized void write(SparkSide side, long batch, String marker) {
    // The machine writes one marker at a time.
    writing = CompletableFuture.supplyAsync(() -> written(batch, marker), writers)
        .thenAccept(fact -> tell(side, fact));
  }

  private Object written(long batch, String marker) {
    synchronized (this) {
      if (ended) {
        return Map.of("NotWritten", "The query has gone on");
      }
    }
    try {
      machine().write(batch, marker);
      return "Written";
    } catch (RuntimeException e) {
      LOG.error("Cannot write the marker of batch {} of {}", batch, checkpoint, e);
      return Map.of("NotWritten", String.valueOf(e.getMessage()));
    }
  }
}
