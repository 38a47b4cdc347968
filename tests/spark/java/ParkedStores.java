import io.holdfast.spark.HoldfastStateStoreProvider;
import io.holdfast.spark.Native;
import io.holdfast.spark.merged.FileEnd;
import io.holdfast.spark.sparklog.CommitLog;
import io.holdfast.spark.store.NativeStore;
import io.holdfast.spark.store.Parking;
import java.io.IOException;
import java.io.InputStream;
import java.nio.charset.StandardCharsets;
import java.util.Arrays;
import java.util.List;
import java.util.Random;
import java.util.UUID;
import java.util.function.Supplier;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.catalyst.expressions.UnsafeRow;
import org.apache.spark.sql.catalyst.expressions.codegen.UnsafeRowWriter;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.Option;

/** Parks versions of a provider's store, like the task of a partition that keeps failing. */
public final class ParkedStores {
  private static final String FAMILY = StateStore.DEFAULT_COL_FAMILY_NAME();
  private static final StructType ROW = new StructType().add("n", DataTypes.LongType);

  private final HoldfastStateStoreProvider provider = new HoldfastStateStoreProvider();
  private NativeStore store;

  /** Begins with version 1, which has one key; returns its id. */
  public String open(SparkSession spark, String folder) {
    StateStoreConf conf =
        new StateStoreConf(
            spark.sessionState().conf(), scala.collection.immutable.Map$.MODULE$.empty());
    Configuration hadoopConf = spark.sessionState().newHadoopConf();
    hadoopConf.set("sql.streaming.runId", UUID.randomUUID().toString());
    provider.init(
        new StateStoreId(folder, 0, 3, "default"),
        ROW,
        ROW,
        new NoPrefixKeyStateEncoderSpec(ROW),
        false,
        conf,
        hadoopConf,
        false,
        Option.empty());
    store = provider.nativeStore();
    StateStore first = at(0, null);
    first.put(row(1), row(10), FAMILY);
    return commit(first);
  }

  private StateStore at(long version, String id) {
    return provider.getStore(version, Option.apply(id), false, false);
  }

  private static String commit(StateStore store) {
    store.commit();
    return store.getStateStoreCheckpointInfo().stateStoreCkptId().get();
  }

  private static UnsafeRow row(long field) {
    UnsafeRowWriter writer = new UnsafeRowWriter(1);
    writer.resetRowWriter();
    writer.write(0, field);
    return writer.getRow().copy();
  }

  /** Bytes that do not compress, as input of a batch. */
  private static byte[] input(int bytes) {
    byte[] input = new byte[bytes];
    new Random(bytes).nextBytes(input);
    return input;
  }

  /** Parks the version after {@code version} with so many bytes; returns its id. */
  public String park(long version, String id, int bytes) {
    byte[] input = input(bytes);
    try (Parking parking = store.park(version, id)) {
      byte[] chunk = new byte[100_000];
      for (int at = 0; at < bytes; at += chunk.length) {
        int length = Math.min(chunk.length, bytes - at);
        System.arraycopy(input, at, chunk, 0, length);
        parking.append(chunk, length);
      }
      return parking.finish(bytes / 100);
    }
  }

  public String pending(String id) {
    return store.pending(id).toString();
  }

  /** True if an input is read as it was parked, by arrays and by single bytes. */
  public boolean isRead(String id, long version, int bytes) throws IOException {
    try (InputStream whole = store.pendingInput(id, version);
        InputStream begin = store.pendingInput(id, version)) {
      byte[] input = input(bytes);
      boolean same = Arrays.equals(whole.readAllBytes(), input) && whole.read() == -1;
      return same && begin.read() == (bytes == 0 ? -1 : input[0] & 0xff);
    }
  }

  /** Changes a key on top of a version and commits; returns the id, or the failure. */
  public String change(long version, String id, boolean replayed) {
    StateStore changed = at(version, id);
    changed.put(row(2), row(version), FAMILY);
    if (replayed) {
      store.markReplayed();
    }
    try {
      return commit(changed);
    } catch (Exception e) {
      changed.abort();
      return causes(e);
    }
  }

  /** The values of both keys. */
  public String values(long version, String id) {
    StateStore opened = at(version, id);
    try {
      UnsafeRow first = opened.get(row(1), FAMILY);
      UnsafeRow second = opened.get(row(2), FAMILY);
      return first.getLong(0) + "," + (second == null ? null : second.getLong(0));
    } finally {
      opened.abort();
    }
  }

  /** The files that the driver makes durable for an id. */
  public String[] files(String id) {
    FileEnd[] ends = Native.referencedEnds(new String[] {id});
    return Arrays.stream(ends).map(end -> end.file().toString()).toArray(String[]::new);
  }

  /** True if the driver takes an id in an entry of the commit log for one of Holdfast's. */
  public boolean isInCommitLog(String id) throws IOException {
    String entry = "v2\n{\"stateUniqueIds\":{\"0\":[[\"" + id + "\"]]}}";
    List<CommitLog.StoreId> found =
        CommitLog.holdfastIds(entry.getBytes(StandardCharsets.UTF_8));
    return found.equals(List.of(new CommitLog.StoreId("0", "0/0", id)));
  }

  public String wrongCalls(String id) {
    Parking closed = store.park(1, id);
    closed.close();
    closed.close();
    Parking open = store.park(1, id);
    String said =
        String.join(
            "\n",
            failure(() -> store.park(2, id)),
            failure(() -> store.park(1, "no id")),
            failure(() -> closed.finish(0)),
            failure(
                () -> {
                  open.append(new byte[2], 3);
                  return "";
                }),
            failure(() -> store.pendingInput(id, 1)),
            failure(
                () -> {
                  store.markReplayed();
                  return "";
                }));
    open.close();
    return said;
  }

  private static String failure(Supplier<Object> call) {
    try {
      return "returned " + call.get();
    } catch (RuntimeException e) {
      return e.getClass().getSimpleName() + ": " + e.getMessage();
    }
  }

  private static String causes(Throwable e) {
    return e == null ? "" : e.getMessage() + "; " + causes(e.getCause());
  }
}
