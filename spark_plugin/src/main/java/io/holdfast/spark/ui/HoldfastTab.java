package io.holdfast.spark.ui;

import io.holdfast.spark.ui.UiRows.Start;
import jakarta.servlet.http.HttpServletRequest;
import java.net.URLEncoder;
import java.nio.charset.StandardCharsets;
import org.apache.spark.ui.SparkUI;
import org.apache.spark.ui.SparkUITab;
import org.apache.spark.ui.UIUtils;
import org.apache.spark.ui.WebUIPage;
import scala.Option;
import scala.collection.immutable.Seq;
import scala.xml.Node;
import scala.xml.Unparsed;

/** An overview, and a page for each query and each regional pipeline. */
final class HoldfastTab extends SparkUITab {
  private static final String PREFIX = "holdfast";
  private static final String START = "start";
  private static final String RUN = "run"; // names the start of a page

  private final RowStore rows;

  HoldfastTab(SparkUI ui, RowStore rows) {
    super(ui, PREFIX);
    this.rows = rows;
    attachPage(new Page("", this::overview));
    attachPage(new Page(START, this::ofStart));
  }

  @Override
  public String name() {
    return "Holdfast";
  }

  private String address(HttpServletRequest request, Start start) {
    String run = URLEncoder.encode(start.run(), StandardCharsets.UTF_8);
    String path = "/" + PREFIX + "/" + START + "/?" + RUN + "=" + run;
    return UIUtils.prependBaseUri(request, basePath(), path);
  }

  private Seq<Node> page(HttpServletRequest request, String title, String content) {
    String markup = "<div class=\"hf-tab\">" + Style.ELEMENT + content + "</div>";
    return UIUtils.headerSparkPage(
        request,
        title,
        () -> new Unparsed(markup),
        this,
        Option.empty(),
        false, // from-4.2
        false,
        false);
  }

  private Seq<Node> overview(HttpServletRequest request) throws Exception {
    return page(request, "Holdfast", OverviewPage.of(rows, one -> address(request, one)));
  }

  private Seq<Node> ofStart(HttpServletRequest request) throws Exception {
    // Spark's filter replaces signs of markup in parameters. No run has such a sign.
    String run = request.getParameter(RUN);
    Start start = run == null ? null : rows.start(run).orElse(null);
    if (start == null) {
      return page(
          request,
          "Holdfast",
          "<p>This start of a query or a pipeline is not known here, or not any more.</p>");
    }
    // Spark escapes the title.
    return start.kind() == UiRows.Kind.QUERY
        ? page(request, "Query " + start.name(), QueryPage.of(rows, start))
        : page(request, "Regional pipeline " + start.name(), PipelinePage.of(rows, start));
  }

  private interface Content {
    Seq<Node> of(HttpServletRequest request) throws Exception;
  }

  private static final class Page extends WebUIPage {
    private final Content content;

    Page(String prefix, Content content) {
      super(prefix);
      this.content = content;
    }

    @Override
    public Seq<Node> render(HttpServletRequest request) {
      try {
        return content.of(request);
      } catch (RuntimeException e) {
        throw e;
      } catch (Exception e) {
        // Spark's store of the UI declares every exception.
        throw new IllegalStateException("Cannot read what the tab shows", e);
      }
    }
  }
}
