import java.io.PrintStream;
import java.util.Arrays;

/** Runs another main class until standard input ends, which it does when the parent dies. */
public final class UntilInputEnds {
  private UntilInputEnds() {}

  public static void main(String[] args) throws Exception {
    // What the other program says goes where nobody has to read it.
    PrintStream out = System.out;
    System.setOut(System.err);
    String[] rest = Arrays.copyOfRange(args, 1, args.length);
    Class.forName(args[0]).getMethod("main", String[].class).invoke(null, (Object) rest);
    out.println("started");
    while (System.in.read() >= 0) {
      // Nothing is said to it.
    }
    Runtime.getRuntime().halt(0);
  }
}
