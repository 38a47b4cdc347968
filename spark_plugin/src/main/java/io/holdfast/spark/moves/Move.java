package io.holdfast.spark.moves;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.HoldfastCheckpointFileManager;
import io.holdfast.spark.storage.AtomicStream;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.Map;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.classic.SparkSession;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.internal.SQLConf;
import scala.collection.immutable.Map$;

/** A command that publishes a batch without input, with its session and its checkpoint. */
public abstract class Move {
  static final ObjectMapper JSON = new ObjectMapper();

  final SparkSession session;
  final Path checkpoint;

  Move(SparkSession session, String checkpoint) {
    this.session = session;
    this.checkpoint = new Path(checkpoint);
  }

  final Configuration hadoopConf() {
    return session.sessionState().newHadoopConf();
  }

  /**
   * Settings of state stores: those of the session, of a batch, and others.
   *
   * @param settings of the batch, as JSON
   */
  final StateStoreConf conf(String settings, Map<String, String> own) throws IOException {
    SQLConf conf = session.sessionState().conf().clone();
    for (Map.Entry<String, JsonNode> setting : JSON.readTree(settings).properties()) {
      conf.setConfString(setting.getKey(), setting.getValue().asText());
    }
    own.forEach(conf::setConfString);
    return new StateStoreConf(conf, Map$.MODULE$.empty());
  }

  /**
   * Creates an entry of {@code offsets} or {@code commits}, durably and with the state that it
   * names. Returns false if there is one.
   */
  public final boolean publish(String log, long number, String entry) throws IOException {
    try {
      create(new Path(new Path(checkpoint, log), Long.toString(number)), entry, false);
      return true;
    } catch (FileAlreadyExistsException e) {
      return false;
    }
  }

  final void create(Path file, String text, boolean replace) throws IOException {
    AtomicStream out =
        new HoldfastCheckpointFileManager(file.getParent(), hadoopConf())
            .createAtomic(file, replace);
    try {
      out.write(text.getBytes(StandardCharsets.UTF_8));
      out.close();
    } catch (IOException | RuntimeException e) {
      out.cancel();
      throw e;
    }
  }
}
