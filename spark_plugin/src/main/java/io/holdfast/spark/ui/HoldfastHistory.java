package io.holdfast.spark.ui;

import io.holdfast.spark.minor.BuildInfo;
import java.util.List;
import org.apache.spark.SparkConf;
import org.apache.spark.scheduler.SparkListener;
import org.apache.spark.status.AppHistoryServerPlugin;
import org.apache.spark.status.ElementTrackingStore;
import org.apache.spark.ui.SparkUI;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;
import scala.collection.immutable.Seq;
import scala.jdk.javaapi.CollectionConverters;

/**
 * Puts the tab into the History Server, which finds this class as a service of the plugin's jar.
 * Needs neither the native library nor the plugin.
 */
public final class HoldfastHistory implements AppHistoryServerPlugin {
  private static final Logger LOG = LoggerFactory.getLogger(HoldfastHistory.class);

  @Override
  public Seq<SparkListener> createListeners(SparkConf conf, ElementTrackingStore store) {
    List<SparkListener> listeners = fits() ? List.of(new StatusListener(conf, store)) : List.of();
    return CollectionConverters.asScala(listeners).toSeq();
  }

  /** Only for applications that used Holdfast. */
  @Override
  public void setupUI(SparkUI ui) {
    try {
      RowStore rows = new RowStore(ui.store().store());
      if (fits() && !rows.isEmpty()) {
        ui.attachTab(new HoldfastTab(ui, rows));
      }
    } catch (Exception | LinkageError e) {
      LOG.warn("The History Server shows {} without the Holdfast tab", ui.getAppName(), e);
    }
  }

  /** True if this jar is for the Spark of the server. On another Spark its pages fail. */
  private static boolean fits() {
    try {
      BuildInfo.requireSpark(org.apache.spark.package$.MODULE$.SPARK_VERSION());
      return true;
    } catch (RuntimeException | LinkageError e) {
      LOG.warn("The History Server has no Holdfast tab", e);
      return false;
    }
  }

  /** After Spark's own tabs. */
  @Override
  public int displayOrder() {
    return 100;
  }
}
