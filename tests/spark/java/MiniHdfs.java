import java.io.BufferedReader;
import java.io.File;
import java.io.InputStreamReader;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.BlockLocation;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.hdfs.MiniDFSCluster;

/**
 * A real HDFS on loopback for the tests: prints its URI, then obeys {@code stop FILE} (a data node
 * with a replica of the file) until its standard input ends, which it also does when the test
 * process dies.
 */
public final class MiniHdfs {
  private MiniHdfs() {}

  public static void main(String[] args) throws Exception {
    MiniDFSCluster cluster =
        new MiniDFSCluster.Builder(new Configuration(), new File(args[0]))
            .numDataNodes(Integer.parseInt(args[1]))
            .build();
    cluster.waitActive();
    System.out.println("uri " + cluster.getURI());
    BufferedReader commands = new BufferedReader(new InputStreamReader(System.in));
    for (String line = commands.readLine(); line != null; line = commands.readLine()) {
      stopOneOf(cluster, new Path(line.substring("stop ".length())));
      System.out.println("stopped");
    }
    // What is on its disks goes with the test's folder: no orderly end is needed.
    Runtime.getRuntime().halt(0);
  }

  private static void stopOneOf(MiniDFSCluster cluster, Path file) throws Exception {
    BlockLocation[] blocks =
        cluster.getFileSystem().getFileBlockLocations(file, 0, Long.MAX_VALUE);
    String node = blocks[blocks.length - 1].getNames()[0];
    if (cluster.stopDataNode(node) == null) {
      throw new IllegalStateException("no data node " + node + " to stop");
    }
  }
}
