package io.holdfast.spark.driver;

import io.holdfast.spark.HoldfastException;
import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.MethodHandle;
import java.lang.invoke.MethodHandles;
import java.lang.invoke.MethodType;
import java.lang.reflect.Method;
import java.lang.reflect.Modifier;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.Set;
import java.util.TreeSet;
import java.util.concurrent.Callable;

/**
 * Compares the classes of this jar with the Spark that is there: whether it has every class, field
 * and method that they use, and whether they implement every method that it will call.
 */
public final class SparkProbe {
  private static final String CLASSES = "/holdfast-classes.txt";
  private static final String SPARK = "org/apache/spark/";

  private final ClassLoader loader;
  private final Set<String> missing = new TreeSet<>();

  private SparkProbe(ClassLoader loader) {
    this.loader = loader;
  }

  /**
   * What does not fit, sorted; empty where everything does.
   *
   * @param loader knows Spark's classes and those of this jar
   */
  public static List<String> missing(ClassLoader loader) {
    SparkProbe probe = new SparkProbe(loader);
    for (String file : classes()) {
      probe.check(file);
    }
    return List.copyOf(probe.missing);
  }

  private static List<String> classes() {
    try (InputStream in = SparkProbe.class.getResourceAsStream(CLASSES)) {
      if (in == null) {
        throw new HoldfastException("The Holdfast jar is incomplete: it has no " + CLASSES);
      }
      return new String(in.readAllBytes(), StandardCharsets.UTF_8).lines().toList();
    } catch (IOException e) {
      throw new HoldfastException("Cannot read " + CLASSES + " of the Holdfast jar", e);
    }
  }

  private void check(String file) {
    ClassFile parsed;
    try (InputStream in = SparkProbe.class.getResourceAsStream("/" + file)) {
      if (in == null) {
        throw new HoldfastException("The Holdfast jar is incomplete: it has no " + file);
      }
      parsed = ClassFile.read(in);
    } catch (IOException e) {
      throw new HoldfastException("Cannot read " + file + " of the Holdfast jar", e);
    }
    int before = missing.size();
    parsed.classes().stream().filter(name -> name.startsWith(SPARK)).forEach(this::load);
    parsed.members().stream()
        .filter(member -> member.owner().startsWith(SPARK))
        .forEach(this::look);
    if (missing.size() == before) {
      // With a class missing it could not be loaded.
      implementAll(file);
    }
  }

  /** The class of a name with slashes; null where there is none, which is then noted. */
  private Class<?> load(String name) {
    try {
      return Class.forName(name.replace('/', '.'), false, loader);
    } catch (ClassNotFoundException | LinkageError e) {
      missing.add("class " + name.replace('/', '.'));
      return null;
    }
  }

  private void look(ClassFile.Member member) {
    Class<?> owner = load(member.owner());
    try {
      if (owner != null && !has(owner, member)) {
        missing.add(
            owner.getName() + "." + member.name() + " " + member.descriptor().replace('/', '.'));
      }
    } catch (TypeNotPresentException | LinkageError e) {
      missing.add(member.owner().replace('/', '.') + "." + member.name() + ": " + e.getMessage());
    }
  }

  /**
   * Whether the JVM finds it. Method handles are asked, not reflection: listing the methods of a
   * class needs the types in all of them, and Spark does not ship every one.
   */
  private boolean has(Class<?> owner, ClassFile.Member member) {
    try {
      MethodHandles.Lookup lookup = MethodHandles.privateLookupIn(owner, MethodHandles.lookup());
      if (!member.descriptor().startsWith("(")) {
        Class<?> type =
            MethodType.fromMethodDescriptorString("()" + member.descriptor(), loader).returnType();
        return found(() -> lookup.findStaticGetter(owner, member.name(), type))
            || found(() -> lookup.findGetter(owner, member.name(), type));
      }
      MethodType type = MethodType.fromMethodDescriptorString(member.descriptor(), loader);
      return member.name().equals("<init>")
          ? found(() -> lookup.findConstructor(owner, type))
          : found(() -> lookup.findVirtual(owner, member.name(), type))
              || found(() -> lookup.findStatic(owner, member.name(), type));
    } catch (IllegalAccessException e) {
      throw new HoldfastException("Cannot look into " + owner, e);
    }
  }

  private static boolean found(Callable<MethodHandle> look) {
    try {
      look.call();
      return true;
    } catch (NoSuchMethodException | NoSuchFieldException | IllegalAccessException e) {
      // The last is thrown for a member that is static, or is not, contrary to the call.
      return false;
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new HoldfastException("Cannot look into Spark's classes", e);
    }
  }

  /** Notes what a class of this jar that is no abstract one inherits and does not implement. */
  private void implementAll(String file) {
    String name = file.substring(0, file.length() - ".class".length());
    Class<?> own = load(name);
    if (own == null || Modifier.isAbstract(own.getModifiers())) {
      return;
    }
    try {
      for (Method method : own.getMethods()) {
        if (Modifier.isAbstract(method.getModifiers())) {
          missing.add(own.getName() + " does not implement " + method.toGenericString());
        }
      }
    } catch (TypeNotPresentException | LinkageError e) {
      missing.add(own.getName() + ": " + e.getMessage());
    }
  }
}
