import java.io.BufferedReader;
import java.io.File;
import java.io.IOException;
import java.io.InputStreamReader;
import java.net.InetAddress;
import java.util.Map;
import java.util.Queue;
import java.util.TreeMap;
import java.util.concurrent.ConcurrentLinkedQueue;
import java.util.regex.Pattern;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.LocatedFileStatus;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.RemoteIterator;
import org.apache.hadoop.hdfs.DFSConfigKeys;
import org.apache.hadoop.hdfs.DistributedFileSystem;
import org.apache.hadoop.hdfs.MiniDFSCluster;
import org.apache.hadoop.hdfs.server.datanode.DataNode;
import org.apache.hadoop.hdfs.server.namenode.AuditLogger;
import org.apache.hadoop.metrics2.AbstractMetric;
import org.apache.hadoop.metrics2.MetricsRecord;
import org.apache.hadoop.metrics2.MetricsSource;
import org.apache.hadoop.metrics2.impl.MetricsCollectorImpl;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;

/**
 * A real HDFS on loopback for tests and benchmarks: prints its URI, then obeys commands until its
 * standard input ends. The input also ends when the parent process dies.
 *
 * <ul>
 *   <li>{@code stop FILE} stops a data node with a replica of the file.
 *   <li>{@code operations} tells how many requests of clients the name node has served.
 *   <li>{@code requests} tells the same by kind, a line each: number, kind; then the name node's
 *       notes since the last time: kind, path, other path; then {@code end}.
 *   <li>{@code users} tells who asked for something since the last time: the user, and the columns
 *       of {@code requests}; then {@code end}.
 *   <li>{@code code FOLDER} makes a folder of erasure-coded files; it needs three data nodes.
 *   <li>{@code coded FOLDER} lists the files below a folder that are; then {@code end}.
 *   <li>{@code files FOLDER} lists the files below a folder: length, space, URI; then {@code end}.
 * </ul>
 */
public final class MiniHdfs {
  private static final String COUNT = "NumOps";

  /** Data nodes ask these with or without clients; everything is counted again under two names. */
  private static final Pattern NOT_OF_CLIENTS =
      Pattern.compile(
          "(Overall|Deferred|Block|CommitBlockSynchronization|ErrorReport|RegisterDatanode"
              + "|SendHeartbeat|VersionRequest).*");

  private static final Queue<String> NOTED = new ConcurrentLinkedQueue<>();

  /** The policy of Hadoop for the fewest data nodes. */
  private static final String CODE = "XOR-2-1-1024k";

  private MiniHdfs() {}

  /** Client requests for files and folders, in order; block requests are counted elsewhere. */
  public static final class Notes implements AuditLogger {
    @Override
    public void initialize(Configuration conf) {}

    @Override
    public void logAuditEvent(
        boolean succeeded,
        String user,
        InetAddress client,
        String kind,
        String path,
        String other,
        FileStatus status) {
      String asked = kind + " " + path + " " + other + (succeeded ? "" : " failed");
      NOTED.add(user.split(" ")[0] + " " + asked);
    }
  }

  public static void main(String[] args) throws Exception {
    Configuration conf = new Configuration();
    conf.set(DFSConfigKeys.DFS_NAMENODE_AUDIT_LOGGERS_KEY, Notes.class.getName());
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(conf, new File(args[0]))
            .numDataNodes(Integer.parseInt(args[1]))
            .build();
    cluster.waitActive();
    System.out.println("uri " + cluster.getURI());
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      String[] command = line.split(" ", 2);
      switch (command[0]) {
        case "stop":
          stopOneOf(cluster, new Path(command[1]));
          System.out.println("stopped");
          break;
        case "operations":
          System.out.println("operations " + sum(operations(cluster).values()));
          break;
        case "syncs":
          System.out.println("syncs " + syncs(cluster));
          break;
        case "requests":
          operations(cluster)
              .forEach((kind, count) -> System.out.println("count " + count + " " + kind));
          for (String note = NOTED.poll(); note != null; note = NOTED.poll()) {
            System.out.println("note " + note.split(" ", 2)[1]);
          }
          System.out.println("end");
          break;
        case "users":
          for (String note = NOTED.poll(); note != null; note = NOTED.poll()) {
            System.out.println("asked " + note);
          }
          System.out.println("end");
          break;
        case "code":
          code(cluster.getFileSystem(), new Path(command[1]));
          System.out.println("coded");
          break;
        case "coded":
          listCoded(cluster.getFileSystem(), new Path(command[1]));
          System.out.println("end");
          break;
        case "files":
          list(cluster, new Path(command[1]));
          System.out.println("end");
          break;
        default:
          throw new IllegalArgumentException(line);
      }
    }
    // Its disks are deleted with the test's folder: no orderly end is needed.
    Runtime.getRuntime().halt(0);
  }

  private static void code(DistributedFileSystem files, Path folder) throws IOException {
    files.mkdirs(folder);
    files.enableErasureCodingPolicy(CODE);
    files.setErasureCodingPolicy(folder, CODE);
  }

  private static void listCoded(DistributedFileSystem files, Path folder) throws IOException {
    RemoteIterator<LocatedFileStatus> found = files.listFiles(folder, true);
    while (found.hasNext()) {
      FileStatus status = found.next();
      if (status.isErasureCoded()) {
        System.out.println(status.getPath());
      }
    }
  }

  private static void stopOneOf(MiniDFSCluster cluster, Path file) throws Exception {
    BlockLocation[] blocks =
        cluster.getFileSystem().getFileBlockLocations(file, 0, Long.MAX_VALUE);
    String node = blocks[blocks.length - 1].getNames()[0];
    if (cluster.stopDataNode(node) == null) {
      throw new IllegalStateException("no data node " + node + " to stop");
    }
  }

  private static long sum(Iterable<Long> counts) {
    long sum = 0;
    for (long count : counts) {
      sum += count;
    }
    return sum;
  }

  /** Data nodes have synced parts of a block so many times. */
  private static long syncs(MiniDFSCluster cluster) {
    long syncs = 0;
    for (DataNode node : cluster.getDataNodes()) {
      MetricsCollectorImpl collector = new MetricsCollectorImpl();
      MetricsSource source = DefaultMetricsSystem.instance().getSource(node.getMetrics().name());
      source.getMetrics(collector, true);
      for (MetricsRecord record : collector.getRecords()) {
        for (AbstractMetric metric : record.metrics()) {
          if (metric.name().equals("FsyncCount")) {
            syncs += metric.value().longValue();
          }
        }
      }
    }
    return syncs;
  }

  private static Map<String, Long> operations(MiniDFSCluster cluster) {
    MetricsSource source =
        DefaultMetricsSystem.instance()
            .getSource("RpcDetailedActivityForPort" + cluster.getNameNodePort());
    MetricsCollectorImpl collector = new MetricsCollectorImpl();
    source.getMetrics(collector, true);
    Map<String, Long> found = new TreeMap<>();
    for (MetricsRecord record : collector.getRecords()) {
      for (AbstractMetric metric : record.metrics()) {
        String name = metric.name();
        if (name.endsWith(COUNT) && !NOT_OF_CLIENTS.matcher(name).matches()) {
          String kind = name.substring(0, name.length() - COUNT.length());
          found.merge(kind, metric.value().longValue(), Long::sum);
        }
      }
    }
    return found;
  }

  private static void list(MiniDFSCluster cluster, Path folder) throws IOException {
    RemoteIterator<LocatedFileStatus> files = cluster.getFileSystem().listFiles(folder, true);
    while (files.hasNext()) {
      LocatedFileStatus file = files.next();
      System.out.println(file.getLen() + " " + file.getPath());
    }
  }
}
