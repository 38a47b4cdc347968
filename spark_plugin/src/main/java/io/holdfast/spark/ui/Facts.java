package io.holdfast.spark.ui;

import io.holdfast.spark.ui.UiRows.Start;

/** What stands at the head of a page: figures, and how a start stands. */
final class Facts {
  private final StringBuilder out = new StringBuilder("<dl class=\"hf-facts\">");

  /** Begins with how a start stands. */
  static Facts of(Start start) {
    return new Facts().add("state", state(start), "started " + Html.time(start.startedMs()));
  }

  /** Adds a fact; what is said below it may be empty. */
  Facts add(String name, String value, String below) {
    out.append("<div><dt>").append(Html.text(name)).append("</dt><dd>").append(Html.text(value));
    if (!below.isEmpty()) {
      out.append("<small>").append(Html.text(below)).append("</small>");
    }
    out.append("</dd></div>");
    return this;
  }

  String markup() {
    return out + "</dl>";
  }

  /** How a start stands, in a word. */
  static String state(Start start) {
    if (start.endedMs() == 0) {
      return "running";
    }
    return start.failure().isEmpty() ? "ended" : "failed";
  }

  /** Why it ended, if that is known. */
  static String failure(Start start) {
    return start.failure().isEmpty()
        ? ""
        : "<p class=\"hf-wrong\">" + Html.text(start.failure()) + "</p>";
  }
}
