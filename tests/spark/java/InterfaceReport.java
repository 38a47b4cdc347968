import io.holdfast.spark.minor.SparkProbe;
import java.lang.reflect.Method;
import java.util.Arrays;
import java.util.List;

/**
 * Prints how Holdfast's classes fit the Spark on the class path. {@code missing} has the findings
 * of the probe, {@code optional} a method of Spark's interfaces that they leave at its default.
 */
public final class InterfaceReport {
  private static final List<String> CLASSES =
      List.of(
          "io.holdfast.spark.HoldfastStateStoreProvider",
          "io.holdfast.spark.HoldfastCheckpointFileManager",
          "io.holdfast.spark.store.HoldfastReadStore",
          "io.holdfast.spark.store.HoldfastStateStore",
          "io.holdfast.spark.rpc.Endpoint");

  private InterfaceReport() {}

  public static void main(String[] arguments) throws ClassNotFoundException {
    ClassLoader loader = InterfaceReport.class.getClassLoader();
    List<String> missing = SparkProbe.missing(loader);
    missing.forEach(text -> System.out.println("missing " + text));
    if (missing.isEmpty()) {
      for (String name : CLASSES) {
        optional(Class.forName(name, false, loader));
      }
    }
    System.out.println("compared");
  }

  private static void optional(Class<?> own) {
    Arrays.stream(own.getMethods())
        .filter(Method::isDefault)
        .filter(method -> method.getDeclaringClass().getName().startsWith("org.apache.spark."))
        // Scala compiles default arguments to these methods.
        .filter(method -> !method.getName().contains("$default$"))
        .map(method -> method.getDeclaringClass().getSimpleName() + "." + method.getName())
        .distinct()
        .sorted()
        .forEach(text -> System.out.println("optional " + own.getSimpleName() + " " + text));
  }
}
