import java.io.File;
import java.io.FileOutputStream;
import java.io.IOException;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.util.ArrayList;
import java.util.List;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.metrics2.lib.DefaultMetricsSystem;
import org.apache.hadoop.yarn.conf.YarnConfiguration;
import org.apache.hadoop.yarn.server.nodemanager.NodeManager;
import org.apache.hadoop.yarn.server.resourcemanager.ResourceManager;

/**
 * A real YARN on loopback for tests: writes settings for its clients into a folder, prints {@code
 * up}, and ends when its standard input does.
 */
public final class MiniYarn {
  private static final String HOST = "127.0.0.1";
  private static final String QUEUES = "yarn.scheduler.capacity.root.";

  private MiniYarn() {}

  public static void main(String[] args) {
    try {
      run(args);
    } catch (Throwable e) {
      e.printStackTrace();
      Runtime.getRuntime().halt(1);
    }
    Runtime.getRuntime().halt(0);
  }

  private static void run(String[] args) throws Exception {
    File folder = new File(args[0]);
    File settings = new File(folder, "settings");
    settings.mkdir();
    Configuration core = new Configuration(false);
    core.set("fs.defaultFS", args[1]);
    write(core, new File(settings, "core-site.xml"));
    Configuration site = site();
    write(site, new File(settings, "yarn-site.xml"));

    YarnConfiguration conf = new YarnConfiguration();
    conf.addResource(site);
    conf.addResource(core);
    DefaultMetricsSystem.setMiniClusterMode(true);
    ResourceManager resources = new ResourceManager();
    resources.init(conf);
    resources.start();
    List<NodeManager> nodes = new ArrayList<>();
    for (int number = 0; number < Integer.parseInt(args[2]); number++) {
      YarnConfiguration own = new YarnConfiguration(conf);
      own.set(YarnConfiguration.NM_LOCAL_DIRS, new File(folder, "local-" + number).getPath());
      own.set(YarnConfiguration.NM_LOG_DIRS, new File(folder, "logs-" + number).getPath());
      NodeManager node = new NodeManager();
      node.init(own);
      node.start();
      nodes.add(node);
    }
    System.out.println("up");
    while (System.in.read() >= 0) {
      continue;
    }
    // Node managers end the containers of applications that still exist.
    nodes.forEach(NodeManager::stop);
    resources.stop();
  }

  private static Configuration site() throws IOException {
    Configuration site = new Configuration(false);
    for (String service : new String[] {"", "scheduler.", "resource-tracker.", "admin.", "webapp."}) {
      site.set("yarn.resourcemanager." + service + "address", HOST + ":" + freePort());
    }
    for (String service : new String[] {"", "localizer.", "webapp."}) {
      site.set("yarn.nodemanager." + service + "address", HOST + ":0");
    }
    site.set("yarn.nodemanager.collector-service.address", HOST + ":0");
    site.set(YarnConfiguration.NM_PMEM_MB, "6144");
    site.set(YarnConfiguration.RM_SCHEDULER_MINIMUM_ALLOCATION_MB, "128");
    // A JVM reserves more than it takes.
    site.set(YarnConfiguration.NM_VMEM_CHECK_ENABLED, "false");
    // The disk of a test's machine may be nearly full.
    site.set("yarn.nodemanager.disk-health-checker.enable", "false");
    site.set("yarn.scheduler.capacity.maximum-am-resource-percent", "1");
    site.set(QUEUES + "queues", "default");
    site.set(QUEUES + "default.capacity", "100");
    return site;
  }

  private static int freePort() throws IOException {
    try (ServerSocket socket = new ServerSocket(0, 1, InetAddress.getByName(HOST))) {
      return socket.getLocalPort();
    }
  }

  private static void write(Configuration conf, File file) throws IOException {
    try (OutputStream out = new FileOutputStream(file)) {
      conf.writeXml(out);
    }
  }
}
