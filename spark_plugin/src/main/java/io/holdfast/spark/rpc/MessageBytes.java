package io.holdfast.spark.rpc;

import io.holdfast.spark.HoldfastException;
import java.io.ByteArrayInputStream;
import java.io.ByteArrayOutputStream;
import java.io.IOException;
import java.io.ObjectInputStream;
import java.io.ObjectOutputStream;
import java.io.Serializable;

/**
 * Messages as bytes: an executor's messaging starts before it has the plugin's jar, so it cannot
 * read the plugin's classes. This class is in the jar, so it can.
 */
public final class MessageBytes {
  private MessageBytes() {}

  public static byte[] of(Serializable message) {
    ByteArrayOutputStream bytes = new ByteArrayOutputStream();
    try (ObjectOutputStream out = new ObjectOutputStream(bytes)) {
      out.writeObject(message);
    } catch (IOException e) {
      throw new HoldfastException("Cannot encode " + message, e);
    }
    return bytes.toByteArray();
  }

  /** Reads a message. Both ends have the same version of the plugin. */
  public static <T> T read(byte[] bytes, Class<T> kind) {
    // ObjectInputStream uses the class loader of its caller, here of the jar.
    try (ObjectInputStream in = new ObjectInputStream(new ByteArrayInputStream(bytes))) {
      return kind.cast(in.readObject());
    } catch (IOException | ClassNotFoundException e) {
      throw new HoldfastException("Cannot decode a " + kind.getSimpleName(), e);
    }
  }
}
