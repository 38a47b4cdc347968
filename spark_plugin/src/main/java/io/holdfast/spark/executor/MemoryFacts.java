package io.holdfast.spark.executor;

import com.sun.management.OperatingSystemMXBean;
import java.io.IOException;
import java.lang.management.ManagementFactory;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.stream.Stream;
import org.apache.spark.SparkConf;
import org.slf4j.Logger;
import org.slf4j.LoggerFactory;

/**
 * The memory of this executor, in bytes.
 *
 * @param isContainerOfSpark whether YARN or Kubernetes gave it a container of the size in Spark's
 *     request
 * @param overheadBytes memory that Spark asks for in addition to heap, off-heap and Python memory
 * @param otherBytes off-heap and Python memory in Spark's settings
 * @param limitBytes memory that the JVM may use: the whole machine, or the limit of its container
 */
public record MemoryFacts(
    boolean isContainerOfSpark,
    long overheadBytes,
    long heapBytes,
    long otherBytes,
    long limitBytes,
    long machineBytes) {
  private static final Logger LOG = LoggerFactory.getLogger(MemoryFacts.class);

  private static final Path MACHINE = Path.of("/proc/meminfo");

  // Spark's settings, with its defaults. It reads sizes without a unit as MiB.
  private static final String MEMORY = "spark.executor.memory";
  private static final String OVERHEAD = "spark.executor.memoryOverhead";
  private static final String FACTOR = "spark.executor.memoryOverheadFactor";
  private static final String KUBERNETES_FACTOR = "spark.kubernetes.memoryOverheadFactor";
  private static final double DEFAULT_FACTOR = 0.1;
  private static final String LEAST_OVERHEAD = "spark.executor.minMemoryOverhead";
  private static final String PYTHON_MEMORY = "spark.executor.pyspark.memory";
  private static final String USES_OFF_HEAP = "spark.memory.offHeap.enabled";
  private static final String OFF_HEAP = "spark.memory.offHeap.size";

  public static MemoryFacts here(SparkConf conf) {
    OperatingSystemMXBean system =
        (OperatingSystemMXBean) ManagementFactory.getOperatingSystemMXBean();
    // The JVM knows the limits of both versions of control groups.
    long limit = system.getTotalMemorySize();
    return of(conf, Runtime.getRuntime().maxMemory(), limit, readMachine(limit));
  }

  public static MemoryFacts of(SparkConf conf, long heapBytes, long limitBytes, long machineBytes) {
    String master = conf.get("spark.master", "");
    long other = conf.getSizeAsMb(PYTHON_MEMORY, "0") << 20;
    if (conf.getBoolean(USES_OFF_HEAP, false)) {
      other += conf.getSizeAsBytes(OFF_HEAP, "0");
    }
    return new MemoryFacts(
        master.startsWith("yarn") || master.startsWith("k8s://"),
        overhead(conf),
        heapBytes,
        other,
        limitBytes,
        machineBytes);
  }

  private static long overhead(SparkConf conf) {
    if (conf.contains(OVERHEAD)) {
      return conf.getSizeAsMb(OVERHEAD, "0") << 20;
    }
    // On Kubernetes the driver puts 0.4 there for applications in Python.
    double factor = conf.getDouble(FACTOR, conf.getDouble(KUBERNETES_FACTOR, DEFAULT_FACTOR));
    long share = (long) (factor * conf.getSizeAsMb(MEMORY, "1g"));
    return Math.max(share, conf.getSizeAsMb(LEAST_OVERHEAD, "384m")) << 20;
  }

  private static long readMachine(long limitBytes) {
    try (Stream<String> lines = Files.lines(MACHINE)) {
      String total = lines.filter(line -> line.startsWith("MemTotal:")).findFirst().orElseThrow();
      return Long.parseLong(total.replaceAll("[^0-9]", "")) << 10;
    } catch (IOException | RuntimeException e) {
      // An executor must run without it. A container then counts as a machine: state gets less.
      String said = "Cannot read {}: the memory of the machine is taken to be {} bytes";
      LOG.warn(said, MACHINE, limitBytes, e);
      return limitBytes;
    }
  }
}
