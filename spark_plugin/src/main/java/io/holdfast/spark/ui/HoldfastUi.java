package io.holdfast.spark.ui;

import org.apache.spark.SparkContext;
import org.apache.spark.ui.SparkUI;
import org.apache.spark.util.kvstore.KVStore;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/** Puts the tab into the UI of a running application. */
public final class HoldfastUi {
  private static final Logger LOG = LoggerFactory.getLogger(HoldfastUi.class);

  private HoldfastUi() {}

  /** Everything else works without the tab. */
  public static void attach(SparkContext sc) {
    try {
      if (sc.ui().isDefined()) {
        SparkUI ui = sc.ui().get();
        KVStore store = sc.statusStore().store();
        sc.listenerBus().addToStatusQueue(new StatusListener(sc.getConf(), store));
        ui.attachTab(new HoldfastTab(ui, new RowStore(store)));
      }
    } catch (RuntimeException | LinkageError e) {
      LOG.warn("Spark's UI has no Holdfast tab", e);
    }
  }
}
