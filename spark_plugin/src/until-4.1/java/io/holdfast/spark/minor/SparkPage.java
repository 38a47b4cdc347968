package io.holdfast.spark.minor;

import jakarta.servlet.http.HttpServletRequest;
import org.apache.spark.ui.SparkUITab;
import org.apache.spark.ui.UIUtils;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.xml.Node;

/** A page of Spark's UI, without scripts of its own. */
public final class SparkPage {
  private SparkPage() {}

  public static Seq<Node> of(
      HttpServletRequest request, String title, Seq<Node> content, SparkUITab tab) {
    return UIUtils.headerSparkPage(
        request, title, () -> content, tab, Option.empty(), false, false);
  }
}
