package io.holdfast.spark.badrows;

import io.holdfast.spark.HoldfastConf;
import io.holdfast.spark.HoldfastException;
import io.holdfast.spark.storage.Storages;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.lang.invoke.SerializedLambda;
import java.lang.reflect.Method;
import java.nio.charset.StandardCharsets;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.Collections;
import java.util.HexFormat;
import java.util.Map;
import java.util.UUID;
import java.util.WeakHashMap;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;
import org.apache.spark.api.python.PythonFunction;
import org.apache.spark.sql.catalyst.expressions.ExprId;
import org.apache.spark.sql.catalyst.plans.logical.LogicalPlan;
import org.apache.spark.sql.execution.streaming.runtime.MicroBatchExecution;
import scala.Option;
import scala.Product;
import scala.collection.IterableOnce;
import scala.collection.Iterator;
import scala.jdk.javaapi.CollectionConverters;

/**
 * A program by its digest. With the same program a row throws in each run of a batch or in none, so a
 * re-run may find bad rows. With another one the sink may have a row that throws now.
 */
final class Program {
  /** Runs that planned a batch. */
  private static final Map<MicroBatchExecution, Boolean> PLANNED =
      Collections.synchronizedMap(new WeakHashMap<>());

  private final MessageDigest digest;
  private boolean isKnown = true;

  private Program() {
    try {
      digest = MessageDigest.getInstance("SHA-256");
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException(e);
    }
  }

  /** Digests the expressions of an analyzed query, and the code of its functions. */
  private static String of(LogicalPlan query) {
    Program program = new Program();
    program.add(query);
    // A program with unknown code is like no other, and like no run of itself.
    byte[] found = program.digest.digest();
    return program.isKnown ? HexFormat.of().formatHex(found) : UUID.randomUUID().toString();
  }

  private void add(Object part) {
    if (part instanceof ExprId) {
      return; // a new one in each run
    }
    String name = part == null ? "" : part.getClass().getName();
    boolean isFunction = part != null && part.getClass().isHidden();
    // Names of functions' classes are new in each JVM.
    text(isFunction ? "" : name);
    if (isFunction) {
      code(part);
    } else if (part instanceof PythonFunction function) {
      CollectionConverters.asJava(function.command())
          .forEach(one -> digest.update(((Number) one).byteValue()));
    } else if (part instanceof LogicalPlan leaf && leaf.children().isEmpty()) {
      text(leaf.nodeName());
    } else if (part instanceof Product parts && !(part instanceof Option<?>)) {
      addAll(parts.productIterator());
    } else if (part instanceof IterableOnce<?> all) {
      addAll(all.iterator());
    } else if (part instanceof byte[] bytes) {
      digest.update(bytes);
    } else if (part != null) {
      String said = part.toString();
      boolean isText = !said.equals(name + "@" + Integer.toHexString(part.hashCode()));
      text(isText ? said : "");
      if (!name.matches("(org\\.apache\\.spark|scala|java)\\..*")) {
        code(name);
      }
    }
  }

  private void addAll(Iterator<?> parts) {
    CollectionConverters.asJava(parts).forEachRemaining(this::add);
  }

  private void code(Object lambda) {
    try {
      Method replaced = lambda.getClass().getDeclaredMethod("writeReplace");
      replaced.setAccessible(true);
      SerializedLambda form = (SerializedLambda) replaced.invoke(lambda);
      text(form.getImplMethodName());
      code(form.getImplClass());
    } catch (ReflectiveOperationException | RuntimeException unknown) {
      isKnown = false;
    }
  }

  private void code(String className) {
    String file = className.replace('.', '/') + ".class";
    ClassLoader loader = Thread.currentThread().getContextClassLoader();
    try (InputStream in = loader.getResourceAsStream(file)) {
      digest.update(in.readAllBytes());
    } catch (IOException | RuntimeException unknown) {
      isKnown = false;
    }
  }

  private void text(String text) {
    digest.update(text.getBytes(StandardCharsets.UTF_8));
    digest.update((byte) 0);
  }

  static boolean hasPlanned(MicroBatchExecution query) {
    return PLANNED.containsKey(query);
  }

  /** Records the program of a run that sets rows aside, before it plans its first batch. */
  static void planning(MicroBatchExecution query, Path checkpoint, Configuration conf) {
    if (PLANNED.put(query, true) == null && HoldfastConf.setsRowsAside(conf::get)) {
      record(query, checkpoint, conf, true);
    }
  }

  /**
   * Called before the tasks of a batch that an earlier run planned. Returns false if another program
   * may have run it.
   */
  static boolean repeating(MicroBatchExecution query, Path checkpoint, Configuration conf) {
    return record(query, checkpoint, conf, false);
  }

  private static boolean record(
      MicroBatchExecution query, Path checkpoint, Configuration conf, boolean alone) {
    Path file = new Path(checkpoint, "bad-rows/program");
    String program = of(query.logicalPlan());
    try {
      if (program.equals(read(file, conf))) {
        return true;
      }
      // No digest is empty: the batch had several programs.
      byte[] now = (alone ? program : "").getBytes(StandardCharsets.UTF_8);
      new Storages(conf).at(file).write(file, out -> out.write(now), true);
      return false;
    } catch (IOException e) {
      throw new HoldfastException("Cannot record the program in " + file, e);
    }
  }

  private static String read(Path file, Configuration conf) throws IOException {
    try (InputStream in = file.getFileSystem(conf).open(file)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    } catch (FileNotFoundException none) {
      return null;
    }
  }
}
