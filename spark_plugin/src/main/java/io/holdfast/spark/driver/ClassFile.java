package io.holdfast.spark.driver;

import java.io.DataInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.util.ArrayList;
import java.util.List;

/** What a compiled class refers to, read from its constant pool (JVM specification, section 4.4). */
final class ClassFile {
  /**
   * A field or method that the class uses.
   *
   * @param owner class, with slashes
   * @param descriptor types, as the JVM writes them
   */
  record Member(String owner, String name, String descriptor) {}

  private static final int MAGIC = 0xCAFEBABE;

  private static final int UTF8 = 1;
  private static final int INTEGER = 3;
  private static final int FLOAT = 4;
  private static final int LONG = 5;
  private static final int DOUBLE = 6;
  private static final int CLASS = 7;
  private static final int STRING = 8;
  private static final int FIELD = 9;
  private static final int METHOD = 10;
  private static final int INTERFACE_METHOD = 11;
  private static final int NAME_AND_TYPE = 12;
  private static final int METHOD_HANDLE = 15;
  private static final int METHOD_TYPE = 16;
  private static final int DYNAMIC = 17;
  private static final int INVOKE_DYNAMIC = 18;
  private static final int MODULE = 19;
  private static final int PACKAGE = 20;

  private final String[] texts;
  private final int[] tags;

  /** First and second number of an entry. */
  private final int[][] numbers;

  private ClassFile(int entries) {
    texts = new String[entries];
    tags = new int[entries];
    numbers = new int[entries][2];
  }

  /** Reads the class that {@code stream} has. */
  static ClassFile read(InputStream stream) throws IOException {
    DataInputStream in = new DataInputStream(stream);
    if (in.readInt() != MAGIC) {
      throw new IOException("not a class file");
    }
    in.readInt(); // its version
    ClassFile file = new ClassFile(in.readUnsignedShort());
    for (int i = 1; i < file.tags.length; i++) {
      file.tags[i] = in.readUnsignedByte();
      file.readEntry(i, in);
      if (file.tags[i] == LONG || file.tags[i] == DOUBLE) {
        i++; // these two take the place of two entries
      }
    }
    return file;
  }

  private void readEntry(int i, DataInputStream in) throws IOException {
    switch (tags[i]) {
      case UTF8 -> texts[i] = in.readUTF();
      case INTEGER, FLOAT -> in.readInt();
      case LONG, DOUBLE -> in.readLong();
      case CLASS, STRING, METHOD_TYPE, MODULE, PACKAGE -> numbers[i][0] = in.readUnsignedShort();
      case METHOD_HANDLE -> {
        in.readUnsignedByte();
        in.readUnsignedShort();
      }
      case FIELD, METHOD, INTERFACE_METHOD, NAME_AND_TYPE, DYNAMIC, INVOKE_DYNAMIC -> {
        numbers[i][0] = in.readUnsignedShort();
        numbers[i][1] = in.readUnsignedShort();
      }
      default -> throw new IOException("unknown constant of kind " + tags[i]);
    }
  }

  /** Names of all classes that it mentions, with slashes; arrays as the JVM writes them. */
  List<String> classes() {
    List<String> found = new ArrayList<>();
    for (int i = 1; i < tags.length; i++) {
      if (tags[i] == CLASS) {
        found.add(texts[numbers[i][0]]);
      }
    }
    return found;
  }

  /** All fields and methods that it uses. */
  List<Member> members() {
    List<Member> found = new ArrayList<>();
    for (int i = 1; i < tags.length; i++) {
      if (tags[i] == FIELD || tags[i] == METHOD || tags[i] == INTERFACE_METHOD) {
        int[] nameAndType = numbers[numbers[i][1]];
        String owner = texts[numbers[numbers[i][0]][0]];
        found.add(new Member(owner, texts[nameAndType[0]], texts[nameAndType[1]]));
      }
    }
    return found;
  }
}
