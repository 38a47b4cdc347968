package io.holdfast.spark;

import java.util.UUID;
import org.apache.hadoop.conf.Configuration;
import org.apache.spark.sql.execution.streaming.state.StateStoreConf;
import org.apache.spark.sql.execution.streaming.state.StateStoreId;
import org.apache.spark.sql.execution.streaming.state.StateStoreProvider$;
import org.apache.spark.sql.types.StructType;

/** What Spark told the provider at init, shared by the stores it hands out. */
final class StoreContext {
  final StateStoreId id;
  final StructType keySchema;
  final StructType valueSchema;
  final StateStoreConf conf;
  final Configuration hadoopConf;

  StoreContext(
      StateStoreId id,
      StructType keySchema,
      StructType valueSchema,
      StateStoreConf conf,
      Configuration hadoopConf) {
    this.id = id;
    this.keySchema = keySchema;
    this.valueSchema = valueSchema;
    this.conf = conf;
    this.hadoopConf = hadoopConf;
  }

  UUID runId() {
    return UUID.fromString(StateStoreProvider$.MODULE$.getRunId(hadoopConf));
  }
}
