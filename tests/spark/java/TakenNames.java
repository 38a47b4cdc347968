package io.holdfast.spark.storage;

import io.holdfast.spark.HoldfastCheckpointFileManager;
import java.io.IOException;
import java.io.UncheckedIOException;
import java.nio.charset.StandardCharsets;
import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileAlreadyExistsException;
import org.apache.hadoop.fs.Path;

/**
 * Two applications that want the same names on an object store, one after the other. Prints lines
 * of a name and a word.
 */
public final class TakenNames {
  private TakenNames() {}

  private interface Write {
    void run() throws IOException;
  }

  private static void say(String name, Object what) {
    System.out.println(name + " " + what);
  }

  private static String outcome(Write write) throws IOException {
    try {
      write.run();
      return "written";
    } catch (FileAlreadyExistsException taken) {
      return "refused";
    } catch (UncheckedIOException e) {
      if (e.getCause() instanceof FileAlreadyExistsException) {
        return "refused";
      }
      throw e;
    }
  }

  private static byte[] bytes(String text) {
    return text.getBytes(StandardCharsets.UTF_8);
  }

  private static void entry(HoldfastCheckpointFileManager log, Path path, String content)
      throws IOException {
    AtomicStream out = log.createAtomic(path, false);
    out.write(bytes(content));
    out.close();
  }

  private static String content(Path path, Configuration conf) throws IOException {
    try (FSDataInputStream in = path.getFileSystem(conf).open(path)) {
      return new String(in.readAllBytes(), StandardCharsets.UTF_8);
    }
  }

  /**
   * @param args URI of a folder, then Hadoop's settings as {@code key=value}
   */
  public static void main(String[] args) throws IOException {
    Configuration conf = new Configuration();
    for (int n = 1; n < args.length; n++) {
      String[] setting = args[n].split("=", 2);
      conf.set(setting[0], setting[1]);
    }
    Path file = new Path(args[0], "file");
    Storage files = new Storages(conf).at(file);
    files.write(file, out -> out.write(bytes("first")), false);
    say("file", outcome(() -> files.write(file, out -> out.write(bytes("second")), false)));
    say("file.content", content(file, conf));

    Path folder = new Path(args[0], "offsets");
    HoldfastCheckpointFileManager log = new HoldfastCheckpointFileManager(folder, conf);
    HoldfastCheckpointFileManager other = new HoldfastCheckpointFileManager(folder, conf);
    entry(log, new Path(folder, "0"), "zero");
    Path next = new Path(folder, "1");
    entry(other, next, "first");
    say("entry.exists", log.exists(next));
    say("entry", outcome(() -> entry(log, next, "second")));
    say("entry.content", content(next, conf));
  }
}
