package io.holdfast.spark.isolation.driver;

import java.util.ArrayList;
import java.util.List;
import java.util.regex.Matcher;
import java.util.regex.Pattern;
import org.apache.spark.ExceptionFailure;
import org.apache.spark.SparkThrowable;
import org.apache.spark.TaskEndReason;
import org.apache.spark.TaskFailedReason;

/** Failures of tasks in one line, with the line of the user's program where that is known. */
public final class Failures {
  private static final int CHARACTERS_MAX = 500;
  private static final Pattern PYTHON_LINE =
      Pattern.compile("\\s*File \"(.+)\", line (\\d+), in (.+)");

  private static final Pattern OTHER_CODE =
      Pattern.compile("(java|javax|jdk|sun|scala|org\\.apache|io\\.holdfast)\\..*");

  private Failures() {}

  /** The reason of a failure that counts; null for any other end. */
  static String text(TaskEndReason reason) {
    if (!(reason instanceof TaskFailedReason failed) || !failed.countTowardsTaskFailures()) {
      return null;
    }
    if (!(failed instanceof ExceptionFailure thrown)) {
      return cut(first(failed.toErrorString()));
    }
    if (thrown.exception().isEmpty()) {
      return cut(of(thrown.className(), thrown.description(), thrown.stackTrace()));
    }
    return text(thrown.exception().get());
  }

  public static String text(Throwable thrown) {
    Throwable cause = cause(thrown);
    String said = of(cause.getClass().getName(), cause.getMessage(), cause.getStackTrace());
    Throwable root = root(thrown);
    return cut(root == cause ? said : said + " Cause: " + first(root.toString()));
  }

  /** Spark's error condition; without one, the class of the exception, in Python or in Java. */
  public static String kind(Throwable thrown) {
    Throwable cause = cause(thrown);
    if (isOfPython(cause.getMessage())) {
      return ofPython(cause.getMessage().lines().toList()).split("[: ]", 2)[0];
    }
    String condition = condition(cause);
    return condition == null ? root(thrown).getClass().getName() : condition;
  }

  private static String condition(Throwable thrown) {
    return thrown instanceof SparkThrowable spark ? spark.getCondition() : null;
  }

  /** The root; if it is of a library that Spark calls, the nearest error of Spark. */
  private static Throwable cause(Throwable thrown) {
    Throwable root = root(thrown);
    if (isOfPython(root.getMessage()) || !OTHER_CODE.matcher(root.getClass().getName()).matches()) {
      return root;
    }
    Throwable ofSpark = root;
    for (Throwable one = thrown; one != root && condition(root) == null; one = one.getCause()) {
      ofSpark = one instanceof SparkThrowable ? one : ofSpark;
    }
    return place(List.of(), root.getStackTrace()).isEmpty() ? ofSpark : root;
  }

  private static Throwable root(Throwable thrown) {
    Throwable cause = thrown;
    while (cause.getCause() != null && !isOfPython(cause.getMessage())) {
      cause = cause.getCause();
    }
    return cause;
  }

  private static boolean isOfPython(String message) {
    return message != null && message.contains("Traceback (most recent call last)");
  }

  private static String of(String kind, String message, StackTraceElement[] stack) {
    List<String> lines = message == null ? List.of() : message.lines().toList();
    if (isOfPython(message)) {
      return ofPython(lines);
    }
    String first = lines.isEmpty() ? "" : lines.get(0);
    String said = kind + (first.isEmpty() ? "" : ": " + first);
    if (first.matches("\\[[A-Z0-9_.]+\\] .*")) {
      // Spark's advice follows the first sentence.
      said = first.split("(?<=\\.) ")[0];
    }
    return said + place(lines, stack);
  }

  /** The last line of a traceback is the error. */
  private static String ofPython(List<String> lines) {
    String place = "";
    String error = "";
    for (String line : lines) {
      Matcher frame = PYTHON_LINE.matcher(line);
      if (frame.matches()) {
        boolean ofSpark = frame.group(1).matches(".*/(pyspark|pyspark\\.zip)/.*|<frozen.*");
        place = ofSpark ? place : " (" + frame.group(1) + ", line " + frame.group(2) + ")";
        error = "";
      } else if (error.isEmpty() && line.matches("[A-Za-z_].*") && !line.startsWith("Traceback ")) {
        error = line;
      }
    }
    return error + place;
  }

  /** Spark's errors quote SQL, or name the call of the API. Other errors have a stack. */
  private static String place(List<String> lines, StackTraceElement[] stack) {
    List<String> quoted = new ArrayList<>();
    for (int i = 0; i + 1 < lines.size(); i++) {
      if (lines.get(i).startsWith("== SQL") || lines.get(i).endsWith(" was called from")) {
        quoted.add(lines.get(i + 1).strip());
      }
    }
    if (!quoted.isEmpty()) {
      return " (" + quoted.get(0) + ")";
    }
    for (StackTraceElement frame : stack) {
      if (!OTHER_CODE.matcher(frame.getClassName()).matches()) {
        return " (" + frame + ")";
      }
    }
    return "";
  }

  private static String first(String text) {
    return text.lines().findFirst().orElse("");
  }

  private static String cut(String text) {
    return text.length() <= CHARACTERS_MAX ? text : text.substring(0, CHARACTERS_MAX) + "...";
  }
}
