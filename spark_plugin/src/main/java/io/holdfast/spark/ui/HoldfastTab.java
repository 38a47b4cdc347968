package io.holdfast.spark.ui;

import io.holdfast.spark.minor.SparkPage;
import io.holdfast.spark.ui.UiRows.Start;
import jakarta.servlet.http.HttpServletRequest;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import org.apache.spark.ui.SparkUI;
import org.apache.spark.ui.SparkUITab;
import org.apache.spark.ui.UIUtils;
import org.apache.spark.ui.WebUIPage;
import scala.collection.immutable.Seq;
import scala.xml.Node;

/** The tab: an overview, and a page for each query and each regional pipeline. */
final class HoldfastTab extends SparkUITab {
  private static final String PREFIX = "holdfast";
  private static final String START = "start";

  /** The parameter of a page that says which start it is about. */
  private static final String RUN = "run";

  private final RowStore rows;

  HoldfastTab(SparkUI ui, RowStore rows) {
    super(ui, PREFIX);
    this.rows = rows;
    attachPage(new Overview());
    attachPage(new OfStart());
  }

  @Override
  public String name() {
    return "Holdfast";
  }

  /** The address of the page of a start. */
  private String address(HttpServletRequest request, Start start) {
    String run = URLEncoder.encode(start.run(), StandardCharsets.UTF_8);
    String path = "/" + PREFIX + "/" + START + "/?" + RUN + "=" + run;
    return UIUtils.prependBaseUri(request, basePath(), path);
  }

  private Seq<Node> page(HttpServletRequest request, String title, String content) {
    String markup = "<div class=\"hf-tab\">" + Style.ELEMENT + content + "</div>";
    return SparkPage.of(request, title, Html.nodes(markup), this);
  }

  private final class Overview extends WebUIPage {
    Overview() {
      super("");
    }

    @Override
    public Seq<Node> render(HttpServletRequest request) {
      return page(
          request, "Holdfast", reading(() -> OverviewPage.of(rows, one -> address(request, one))));
    }
  }

  private final class OfStart extends WebUIPage {
    OfStart() {
      super(START);
    }

    @Override
    public Seq<Node> render(HttpServletRequest request) {
      // The filter of Spark's UI replaces signs of markup in parameters: no run has any.
      String run = request.getParameter(RUN);
      Start start = run == null ? null : reading(() -> rows.start(run).orElse(null));
      if (start == null) {
        return page(
            request,
            "Holdfast",
            "<p>This start of a query or a pipeline is not known here, or not any more.</p>");
      }
      boolean isQuery = start.kind() == UiRows.Kind.QUERY;
      String title = (isQuery ? "Query " : "Regional pipeline ") + start.name();
      return page(
          request,
          // Spark escapes it.
          title,
          reading(() -> isQuery ? QueryPage.of(rows, start) : PipelinePage.of(rows, start)));
    }
  }

  private interface Reading<T> {
    T read() throws Exception;
  }

  /** Spark's store of the UI declares every exception. */
  private static <T> T reading(Reading<T> reading) {
    try {
      return reading.read();
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new IllegalStateException("Cannot read what the tab shows", e);
    }
  }
}
