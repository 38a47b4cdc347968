package io.holdfast.spark.minor;

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
import org.apache.xbean.asm9.ClassReader;

/**
 * Compares the classes of this jar with the running Spark. Spark must have every class, field and
 * method that they use, and they must implement every method that Spark will call.
 */
public final class SparkProbe {
  private static final String CLASSES = "/holdfast-classes.txt";
  private static final String SPARK = "org/apache/spark/";

  // Constants of a class file that name classes and members (JVM specification, section 4.4).
  private static final int CLASS = 7;

  private static final int FIELD = 9;
  private static final int METHOD = 10;
  private static final int INTERFACE_METHOD = 11;

  /** The owner of a used field or method has slashes, and its types are as in the JVM. */
  private record Member(String owner, String name, String descriptor) {}

  private final ClassLoader loader;
  private final Set<String> missing = new TreeSet<>();

  private SparkProbe(ClassLoader loader) {
    this.loader = loader;
  }

  /** Returns all that does not fit, sorted. The loader has Spark's classes and this jar's. */
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
    ClassReader parsed;
    try (InputStream in = SparkProbe.class.getResourceAsStream("/" + file)) {
      if (in == null) {
        throw new HoldfastException("The Holdfast jar is incomplete: it has no " + file);
      }
      parsed = new ClassReader(in);
    } catch (IOException e) {
      throw new HoldfastException("Cannot read " + file + " of the Holdfast jar", e);
    }
    int before = missing.size();
    char[] buffer = new char[parsed.getMaxStringLength()];
    for (int item = 1; item < parsed.getItemCount(); item++) {
      // A long or a double takes two places.
      if (parsed.getItem(item) > 0) {
        check(parsed, parsed.getItem(item), buffer);
      }
    }
    if (missing.size() == before) {
      // If a class is missing, this class cannot be loaded.
      implementAll(file);
    }
  }

  private void check(ClassReader parsed, int constant, char[] buffer) {
    switch (parsed.readByte(constant - 1)) {
      case CLASS -> {
        String name = parsed.readUTF8(constant, buffer);
        if (name.startsWith(SPARK)) {
          load(name);
        }
      }
      case FIELD, METHOD, INTERFACE_METHOD -> {
        String owner = parsed.readClass(constant, buffer);
        if (owner.startsWith(SPARK)) {
          int type = parsed.getItem(parsed.readUnsignedShort(constant + 2));
          look(new Member(owner, parsed.readUTF8(type, buffer), parsed.readUTF8(type + 2, buffer)));
        }
      }
      default -> {
        // Texts and numbers.
      }
    }
  }

  /** The name has slashes. Notes a missing class and returns null. */
  private Class<?> load(String name) {
    try {
      return Class.forName(name.replace('/', '.'), false, loader);
    } catch (ClassNotFoundException | LinkageError e) {
      missing.add("class " + name.replace('/', '.'));
      return null;
    }
  }

  private void look(Member member) {
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
   * Asks the JVM for one member by a method handle. Reflection would list all methods of the class,
   * and needs all of their types, but Spark does not ship every such type.
   */
  private boolean has(Class<?> owner, Member member) {
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
      // The last one: the member is static and the call is not, or the other way round.
      return false;
    } catch (RuntimeException e) {
      throw e;
    } catch (Exception e) {
      throw new HoldfastException("Cannot look into Spark's classes", e);
    }
  }

  /** Notes abstract methods that a class of this jar inherits and does not implement. */
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
