package io.holdfast.spark;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Runs the core's storage conformance suite, which is native, against a folder. */
public final class StorageConformance {
  private StorageConformance() {}

  /** Name of a fresh folder for the suite's next check. */
  static HadoopFiles fresh(String parent, int number) throws java.io.IOException {
    return new HadoopFiles(new Path(parent, Integer.toString(number)), configuration);
  }

  private static Configuration configuration;

  private static native void run(String parent);

  /**
   * @param args path of the native library, URI of an empty folder, then settings as key=value
   */
  public static void main(String[] args) {
    System.load(args[0]);
    configuration = new Configuration();
    for (int i = 2; i < args.length; i++) {
      String[] setting = args[i].split("=", 2);
      configuration.set(setting[0], setting[1]);
    }
    run(args[1]);
    System.out.println("conforms");
    System.exit(0);
  }
}
