package io.holdfast.spark.merged;

import java.io.IOException;
import java.nio.ByteBuffer;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.Path;

/** Runs the core's storage conformance suite, which is native, against a folder. */
public final class StorageConformance {
  private static Configuration configuration;

  private StorageConformance() {}

  /** The suite calls this for each check. */
  static HadoopFolder fresh(String parent, int number) throws IOException {
    return new HadoopFolder(new Path(parent, Integer.toString(number)), configuration);
  }

  private static native void run(String parent);

  /** The thread of a cancelled task is interrupted: the file it writes to must not notice. */
  private static void writeInterrupted(HadoopFolder files) throws IOException {
    Thread.currentThread().interrupt();
    HadoopOutput out = files.create("object");
    for (byte i = 0; i < 100; i++) {
      ByteBuffer bytes = ByteBuffer.allocateDirect(1000);
      for (int k = 0; k < 1000; k++) {
        bytes.put(i);
      }
      out.append(bytes.flip());
    }
    out.finish();
    check(Thread.interrupted(), "the interrupt was kept for the task");
    check(files.length("object") == 100_000, "all bytes are there");
    HadoopInput in = files.open("object");
    byte[] found = in.read(0, 100_000);
    in.close();
    for (int k = 0; k < found.length; k++) {
      check(found[k] == k / 1000, "byte " + k);
    }
  }

  private static void check(boolean holds, String what) {
    if (!holds) {
      throw new AssertionError(what);
    }
  }

  /**
   * @param args path of the native library, URI of an empty folder, then settings as key=value
   */
  public static void main(String[] args) throws IOException {
    System.load(args[0]);
    configuration = new Configuration();
    for (int i = 2; i < args.length; i++) {
      String[] setting = args[i].split("=", 2);
      configuration.set(setting[0], setting[1]);
    }
    run(args[1]);
    writeInterrupted(new HadoopFolder(new Path(args[1], "interrupted"), configuration));
    System.out.println("conforms");
    System.exit(0);
  }
}
