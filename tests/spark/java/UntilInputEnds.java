import java.io.IOException;
import java.io.PrintStream;
import java.util.Arrays;

/** Runs another main class until standard input ends, also because the parent dies. */
public final class UntilInputEnds {
  private UntilInputEnds() {}

  public static void main(String[] args) throws Exception {
    // The parent does not read the other program's output.
    PrintStream out = System.out;
    System.setOut(System.err);
    // Its main method may return, or not.
    Thread input = new Thread(UntilInputEnds::awaitEnd, "input");
    input.setDaemon(true);
    input.start();
    String[] rest = Arrays.copyOfRange(args, 1, args.length);
    Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    out.println("started");
    input.join();
  }

  private static void awaitEnd() {
    try {
      while (System.in.read() >= 0) {
        // No input is expected.
      }
    } catch (IOException e) {
      // The parent is gone.
    }
    Runtime.getRuntime().halt(0);
  }
}
