package io.holdfast.spark.moves;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.UnsupportedStateException;
import io.holdfast.spark.sparklog.Batch;
import io.holdfast.spark.storage.Storages;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.Serializable;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.LinkedHashMap;
import java.util.List;
import java.util.Map;
import java.util.OptionalLong;
import java.util.regex.Pattern;
import java.util.stream.LongStream;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
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
record Operator(long id, String name, List<Store> stores, StateSchemaMetadata schemas)
    implements Serializable {
  /** A store that the operator has for each partition, perhaps with column families. */
  record Store(String name, boolean columns, List<Family> families) implements Serializable {}

  /**
   * A column family, or the only one.
   *
   * @param variable the type of its state variable, as Spark names it; empty if Spark describes
   *     none
   * @param internal whether Spark leaves it out of the number of keys
   */
  record Family(
      String name,
      StructType key,
      StructType value,
      KeyStateEncoderSpec spec,
      String variable,
      boolean severalValues,
      boolean internal)
      implements Serializable {}

  static final String LIMIT = "globalLimit";
  static final String JOIN = "symmetricHashJoin";

  static final String TRANSFORM_WITH_STATE = "transformWithState";

  /** Types of state variables. */
  static final String VALUE = "ValueState";

  static final String LIST = "ListState";
  static final String MAP = "MapState";

  /** Joins with state format 4 have these, on the left and on the right. */
  private static final Pattern LISTS_OF_JOINS =
      Pattern.compile("(left|right)-(keyWithTsToValues|tsWithKey)");

  /** Joins with state formats 3 and 4 have these, which Spark does not count. */
  private static final Pattern INDEXES_OF_JOINS =
      Pattern.compile("(left|right)-(keyToNumValues|tsWithKey)");

  /** Begins the name of a column family that Spark adds to a state variable's. */
  private static final Pattern BESIDE = Pattern.compile("^\\$(ttl|min|count|rowCounter)_");

  /** Reads the operators of a checkpoint as they were in a batch. */
  static List<Operator> read(Path checkpoint, long batch, Configuration conf) throws IOException {
    Path state = new Path(checkpoint, "state");
    List<Operator> found = new ArrayList<>();
    for (long id : numbers(state.getFileSystem(conf), state).sorted().toArray()) {
      found.add(named(checkpoint, id, batch, conf));
    }
    return found;
  }

  static Operator read(Path checkpoint, long id, long batch, Configuration conf)
      throws IOException {
    Path state = new Path(checkpoint, "state");
    return new Reader(state.getFileSystem(conf), state, id, batch, conf).read();
  }

  /** Names the folder in errors, because a parser names no file. */
  private static Operator named(Path checkpoint, long id, long batch, Configuration conf) {
    try {
      return read(checkpoint, id, batch, conf);
    } catch (HoldfastException e) {
      throw e;
    } catch (Exception e) {
      // Spark throws checked exceptions that its interfaces do not declare.
      throw new HoldfastException(
          String.format(
              "Cannot read Spark's descriptions of operator %1$d in %2$s/state/%1$d", id, checkpoint),
          e);
    }
  }

  int numberOf(String store) {
    return stores.stream().map(Store::name).toList().indexOf(store);
  }

  static LongStream numbers(FileSystem files, Path folder) throws IOException {
    return Storages.list(files, folder)
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
                : withFamilies(name, storeName, schemaFiles));
      }
      // until-4.0: Limits.requireOne(name, metadata.path("stateStoreInfo").path(0));
      return new Operator(
          id,
          name,
          List.copyOf(stores),
          name.startsWith(TRANSFORM_WITH_STATE)
              ? StateSchemaMetadata.createStateSchemaMetadata(
                  state.toString(), conf, CollectionConverters.asScala(schemaFiles).toList())
              : null);
    }

    private JsonNode metadata() throws IOException {
      OptionalLong newest = versions().max();
      Path folder = new Path(state, id + "/_metadata");
      Path file = newest.isPresent() ? version(newest.getAsLong()) : new Path(folder, "metadata");
      try {
        return description(file);
      } catch (FileNotFoundException none) {
        throw new UnsupportedStateException(
            String.format(
                "%s does not describe operator %d of the query: Spark did that from 4.0 on. Run"
                    + " the query once on this Spark, with its own provider.",
                file, id));
      }
    }

    /** Batches with a new description. */
    private LongStream versions() throws IOException {
      return numbers(files, version(0).getParent()).filter(number -> number <= batch);
    }

    private Path version(long number) {
      return new Path(state, id + "/_metadata/v2/" + number);
    }

    private JsonNode description(Path file) throws IOException {
      String text = Batch.text(file, conf);
      return new ObjectMapper().readTree(text.substring(text.indexOf('\n')));
    }

    /**
     * The types of state variables, by name. Older descriptions have variables, like column
     * families, that are gone from the query.
     */
    private Map<String, String> variables() throws IOException {
      Map<String, String> types = new HashMap<>();
      for (long version : versions().sorted().toArray()) {
        String properties = description(version(version)).path("operatorPropertiesJson").asText();
        for (JsonNode one : new ObjectMapper().readTree(properties).path("stateVariables")) {
          types.put(one.path("stateName").asText(), one.path("stateVariableType").asText());
        }
      }
      return types;
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
      return new Store(name, false, List.of(new Family(family, key, value, spec, "", false, false)));
    }

    private Store withFamilies(String operator, String name, List<String> files)
        throws IOException {
      Map<String, String> variables =
          operator.startsWith(TRANSFORM_WITH_STATE) ? variables() : Map.of();
      Map<String, Family> families = new LinkedHashMap<>();
      // The newest description counts. An older one may have a family that is gone from the query.
      for (String file : files) {
        for (StateStoreColFamilySchema schema : schemas(new Path(file))) {
          String family = schema.colFamilyName();
          KeyStateEncoderSpec spec =
              schema
                  .keyStateEncoderSpec()
                  .getOrElse(() -> new NoPrefixKeyStateEncoderSpec(schema.keySchema()));
          String variable = variables.getOrDefault(BESIDE.matcher(family).replaceFirst(""), "");
          boolean isJoin = operator.equals(JOIN);
          boolean severalValues =
              isJoin
                  ? LISTS_OF_JOINS.matcher(family).matches()
                  : variable.equals(LIST) && !family.startsWith("$");
          boolean internal =
              isJoin ? INDEXES_OF_JOINS.matcher(family).matches() : family.startsWith("$");
          families.put(
              family,
              new Family(
                  family,
                  schema.keySchema(),
                  schema.valueSchema(),
                  spec,
                  variable,
                  severalValues,
                  internal));
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
