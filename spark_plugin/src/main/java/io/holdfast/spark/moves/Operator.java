package io.holdfast.spark.moves;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.UnsupportedStateException;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.Serializable;
import java.nio.charset.StandardCharsets;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.Set;
import java.util.regex.Pattern;
import java.util.stream.LongStream;
import java.util.stream.Stream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.Path;
import org.apache.spark.sql.execution.streaming.state.KeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.NoPrefixKeyStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.PrefixKeyScanStateEncoderSpec;
import org.apache.spark.sql.execution.streaming.state.SchemaHelper;
import org.apache.spark.sql.execution.streaming.state.StateSchemaMetadata;
import org.apache.spark.sql.execution.streaming.state.StateStore;
import org.apache.spark.sql.execution.streaming.state.StateStoreColFamilySchema;
import org.apache.spark.sql.types.DataTypes;
import org.apache.spark.sql.types.StructType;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A stateful operator of a checkpoint, as Spark describes it below {@code state}.
 *
 * @param schemas of the values, by their versions; null unless it is transformWithState
 */
record Operator(
    long id, String name, int partitions, List<Store> stores, StateSchemaMetadata schemas)
    implements Serializable {
  /**
   * A store that the operator has for each partition.
   *
   * @param columns whether the store has column families
   */
  record Store(String name, boolean columns, List<Family> families) implements Serializable {}

  /** A column family, or the only one. */
  record Family(
      String name,
      StructType key,
      StructType value,
      KeyStateEncoderSpec spec,
      boolean severalValues)
      implements Serializable {
    boolean internal() {
      return name.startsWith("$");
    }
  }

  /** Joins with state format 4 have these, on the left and on the right. */
  private static final Pattern LISTS_OF_JOINS =
      Pattern.compile("(left|right)-(keyWithTsToValues|tsWithKey)");

  static final String LIMIT = "globalLimit";

  /** Reads the operators of a checkpoint as they were in a batch. */
  static List<Operator> read(Path checkpoint, long batch, Configuration conf) throws IOException {
    Path state = new Path(checkpoint, "state");
    FileSystem files = state.getFileSystem(conf);
    List<Operator> found = new ArrayList<>();
    for (long id : numbers(files, state).sorted().toArray()) {
      found.add(new Reader(files, state, id, batch, conf).read());
    }
    return found;
  }

  /** Reads one of them. */
  static Operator read(Path checkpoint, long id, long batch, Configuration conf)
      throws IOException {
    Path state = new Path(checkpoint, "state");
    return new Reader(state.getFileSystem(conf), state, id, batch, conf).read();
  }

  /** The number of a store. */
  int numberOf(String store) {
    return stores.stream().map(Store::name).toList().indexOf(store);
  }

  static LongStream numbers(FileSystem files, Path folder)
      throws IOException {
    FileStatus[] listed;
    try {
      listed = files.listStatus(folder);
    } catch (FileNotFoundException none) {
      return LongStream.empty();
    }
    return Stream.of(listed)
        .map(file -> file.getPath().getName())
        .filter(name -> name.matches("[0-9]+"))
        .mapToLong(Long::parseLong);
  }

  private record Reader(FileSystem files, Path state, long id, long batch, Configuration conf) {
    Operator read() throws IOException {
      JsonNode metadata = metadata();
      String name = metadata.path("operatorInfo").path("operatorName").asText();
      List<Store> stores = new ArrayList<>();
      List<String> schemaFiles = new ArrayList<>();
      for (JsonNode store : metadata.path("stateStoreInfo")) {
        for (JsonNode path : store.path("stateSchemaFilePaths")) {
          schemaFiles.add(path.asText());
        }
        String storeName = store.path("storeName").asText();
        stores.add(
            schemaFiles.isEmpty()
                ? plain(name, storeName, store.path("numColsPrefixKey").asInt())
                : withFamilies(storeName, schemaFiles, lists(metadata)));
      }
      int partitions = metadata.path("stateStoreInfo").path(0).path("numPartitions").asInt();
      if (name.equals(LIMIT)) {
        // until-4.0: if (partitions > 1) {
        // until-4.0:   throw new UnsupportedStateException(
        // until-4.0:       "Spark 4.0 has no limit with checkpoint format 2, which Holdfast needs, on"
        // until-4.0:           + " more than one shuffle partition. Use a newer Spark.");
        // until-4.0: }
        // Its rows are in one partition, whatever Spark says there.
        partitions = 1;
      }
      boolean evolves = name.startsWith("transformWithState");
      return new Operator(
          id,
          name,
          partitions,
          List.copyOf(stores),
          evolves
              ? StateSchemaMetadata.createStateSchemaMetadata(
                  state.toString(), conf, CollectionConverters.asScala(schemaFiles).toList())
              : null);
    }

    private JsonNode metadata() throws IOException {
      Path folder = new Path(state, id + "/_metadata");
      Path second = new Path(folder, "v2");
      OptionalLong newest = numbers(files, second).filter(number -> number <= batch).max();
      Path file =
          newest.isPresent()
              ? new Path(second, Long.toString(newest.getAsLong()))
              : new Path(folder, "metadata");
      try (InputStream in = files.open(file)) {
        String text = new String(in.readAllBytes(), StandardCharsets.UTF_8);
        return new ObjectMapper().readTree(text.substring(text.indexOf('\n')));
      } catch (FileNotFoundException none) {
        throw new UnsupportedStateException(
            String.format(
                "%s does not describe operator %d of the query: Spark did that from 4.0 on. Run"
                    + " the query once on this Spark, with its own provider.",
                file, id));
      }
    }

    private static Set<String> lists(JsonNode metadata) throws IOException {
      Set<String> names = new HashSet<>();
      JsonNode properties =
          new ObjectMapper().readTree(metadata.path("operatorPropertiesJson").asText("{}"));
      for (JsonNode variable : properties.path("stateVariables")) {
        if (variable.path("stateVariableType").asText().equals("ListState")) {
          names.add(variable.path("stateName").asText());
        }
      }
      return names;
    }

    private Store plain(String operator, String name, int prefix) throws IOException {
      Path partition = new Path(state, id + "/0");
      boolean only = name.equals("default");
      Path file = new Path(only ? partition : new Path(partition, name), "_metadata/schema");
      StructType key = new StructType().add("key", DataTypes.NullType);
      StructType value = new StructType().add("value", DataTypes.LongType);
      // A limit has no description, because it always has this form.
      if (!operator.equals(LIMIT)) {
        StateStoreColFamilySchema schema = schemas(file).get(0);
        key = schema.keySchema();
        value = schema.valueSchema();
      }
      KeyStateEncoderSpec spec =
          prefix == 0
              ? new NoPrefixKeyStateEncoderSpec(key)
              : new PrefixKeyScanStateEncoderSpec(key, prefix);
      String family = StateStore.DEFAULT_COL_FAMILY_NAME();
      return new Store(name, false, List.of(new Family(family, key, value, spec, false)));
    }

    private Store withFamilies(String name, List<String> files, Set<String> lists)
        throws IOException {
      Map<String, Family> families = new LinkedHashMap<>();
      // The newest description counts. An older one may have a family that is gone from the query.
      for (String file : files) {
        for (StateStoreColFamilySchema schema : schemas(new Path(file))) {
          String family = schema.colFamilyName();
          KeyStateEncoderSpec spec =
              schema
                  .keyStateEncoderSpec()
                  .getOrElse(() -> new NoPrefixKeyStateEncoderSpec(schema.keySchema()));
          boolean severalValues =
              lists.contains(family) || LISTS_OF_JOINS.matcher(family).matches();
          families.put(
              family,
              new Family(
                  family, schema.keySchema(), schema.valueSchema(), spec, severalValues));
        }
      }
      return new Store(name, true, List.copyOf(families.values()));
    }

    private List<StateStoreColFamilySchema> schemas(Path file) throws IOException {
      try (FSDataInputStream in = file.getFileSystem(conf).open(file)) {
        String version = in.readUTF();
        return CollectionConverters.asJava(
            SchemaHelper.SchemaReader$.MODULE$.createSchemaReader(version).read(in));
      }
    }
  }
}
