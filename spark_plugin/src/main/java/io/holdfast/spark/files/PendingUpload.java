package io.holdfast.spark.files;

import com.fasterxml.jackson.databind.JsonNode;
import com.fasterxml.jackson.databind.ObjectMapper;
import com.fasterxml.jackson.databind.node.ArrayNode;
import com.fasterxml.jackson.databind.node.ObjectNode;
import io.holdfast.spark.minor.UploadParts;
import java.io.FileNotFoundException;
import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.nio.ByteBuffer;
import java.nio.channels.FileChannel;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.StandardOpenOption;
import java.security.DigestInputStream;
import java.security.MessageDigest;
import java.security.NoSuchAlgorithmException;
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Arrays;
import java.util.Deque;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import org.apache.hadoop.fs.BBPartHandle;
import org.apache.hadoop.fs.BBUploadHandle;
import org.apache.hadoop.fs.CommonPathCapabilities;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.MultipartUploader;
import org.apache.hadoop.fs.PartHandle;
import org.apache.hadoop.fs.Path;
import org.apache.hadoop.fs.UploadHandle;
import org.apache.hadoop.util.functional.FutureIO;

/**
 * All parts of an object that is not there before its upload is completed. What is needed to complete
 * it, by any process, is kept in another, small object.
 *
 * @param sha256 of the content, to know the object again
 * @param parts handles of the parts, in their order
 */
record PendingUpload(Path target, long length, byte[] sha256, byte[] upload, List<byte[]> parts) {
  /** As S3 has it: of all parts but the last. */
  private static final long LEAST_PART_BYTES = 5L << 20;

  /** As S3 has it. */
  private static final int MOST_PARTS = 10_000;

  private static final String PART_BYTES = "fs.s3a.multipart.size";
  private static final long DEFAULT_PART_BYTES = 64L << 20;

  /** Of one file at a time; a part is not kept in memory. */
  private static final int PARTS_AT_ONCE = 4;

  private static final int VERSION = 1;
  private static final String VERSION_FIELD = "holdfastUpload";

  /** How the JSON begins, and no file with rows. */
  private static final byte[] MAGIC =
      ("{\"" + VERSION_FIELD + "\":").getBytes(StandardCharsets.US_ASCII);

  private static final ObjectMapper JSON = new ObjectMapper();

  /** Whether the store has uploads in parts. */
  static boolean serves(FileSystem fileSystem, Path path) throws IOException {
    return fileSystem.hasPathCapability(path, CommonPathCapabilities.FS_MULTIPART_UPLOADER);
  }

  /** Uploads all of a local file. If that fails nothing of it is left in the store. */
  static PendingUpload of(java.nio.file.Path local, FileSystem fileSystem, Path target)
      throws IOException {
    return FileErrors.repeated(() -> uploaded(local, fileSystem, target));
  }

  private static PendingUpload uploaded(
      java.nio.file.Path local, FileSystem fileSystem, Path target) throws IOException {
    byte[] sha256;
    try (InputStream in = Files.newInputStream(local)) {
      sha256 = sha256(in);
    }
    try (FileChannel file = FileChannel.open(local, StandardOpenOption.READ);
        MultipartUploader uploader = uploader(fileSystem, target)) {
      UploadHandle upload = FutureIO.awaitFuture(uploader.startUpload(target));
      try {
        long partBytes = partBytes(fileSystem, file.size());
        List<byte[]> parts = putParts(uploader, upload, target, file, partBytes);
        return new PendingUpload(target, file.size(), sha256, upload.toByteArray(), parts);
      } catch (IOException | RuntimeException e) {
        abort(uploader, upload, target, e);
        throw e;
      }
    }
  }

  private static long partBytes(FileSystem fileSystem, long length) {
    long configured = fileSystem.getConf().getLongBytes(PART_BYTES, DEFAULT_PART_BYTES);
    long least = (length + MOST_PARTS - 1) / MOST_PARTS;
    return Math.max(configured, Math.max(least, LEAST_PART_BYTES));
  }

  private static List<byte[]> putParts(
      MultipartUploader uploader,
      UploadHandle upload,
      Path target,
      FileChannel file,
      long partBytes)
      throws IOException {
    List<byte[]> parts = new ArrayList<>();
    Deque<CompletableFuture<PartHandle>> underWay = new ArrayDeque<>();
    long length = file.size();
    // A file without content has one part as well.
    int count = (int) Math.max(1, (length + partBytes - 1) / partBytes);
    try {
      for (int i = 0; i < count; i++) {
        if (underWay.size() == PARTS_AT_ONCE) {
          parts.add(FutureIO.awaitFuture(underWay.remove()).toByteArray());
        }
        long start = i * partBytes;
        long bytes = Math.min(partBytes, length - start);
        FileRange content = new FileRange(file, start, bytes);
        underWay.add(
            UploadParts.put(
                uploader, upload, i + 1, i + 1 == count, target, content, bytes));
      }
      while (!underWay.isEmpty()) {
        parts.add(FutureIO.awaitFuture(underWay.remove()).toByteArray());
      }
      return parts;
    } finally {
      // After a failure: an upload can be aborted for good once no part goes up any more.
      underWay.forEach(part -> part.handle((handle, error) -> null).join());
    }
  }

  /** Makes the object. The caller has looked that there is none: it would be replaced. */
  void complete(FileSystem fileSystem) throws IOException {
    Map<Integer, PartHandle> handles = new HashMap<>();
    for (byte[] part : parts) {
      handles.put(handles.size() + 1, BBPartHandle.from(ByteBuffer.wrap(part)));
    }
    try (MultipartUploader uploader = uploader(fileSystem, target)) {
      FutureIO.awaitFuture(uploader.complete(handle(), target, handles));
    }
  }

  /** Throws the parts away; nothing is done if the upload is over. */
  void abort(FileSystem fileSystem) throws IOException {
    try (MultipartUploader uploader = uploader(fileSystem, target)) {
      FutureIO.awaitFuture(uploader.abort(handle(), target));
    } catch (FileNotFoundException over) {
      // It was completed, or aborted before.
    }
  }

  private UploadHandle handle() {
    return BBUploadHandle.from(ByteBuffer.wrap(upload));
  }

  /** Whether an object has the content of this upload. */
  boolean isContentOf(FileSystem fileSystem, Path object) throws IOException {
    try (InputStream in = fileSystem.open(object)) {
      return Arrays.equals(sha256, sha256(in));
    }
  }

  private static MultipartUploader uploader(FileSystem fileSystem, Path target)
      throws IOException {
    return fileSystem.createMultipartUploader(target.getParent()).build();
  }

  private static void abort(
      MultipartUploader uploader, UploadHandle upload, Path target, Exception because) {
    try {
      FutureIO.awaitFuture(uploader.abort(upload, target));
    } catch (IOException | RuntimeException suppressed) {
      because.addSuppressed(suppressed);
    }
  }

  private static byte[] sha256(InputStream in) throws IOException {
    try {
      MessageDigest digest = MessageDigest.getInstance("SHA-256");
      new DigestInputStream(in, digest).transferTo(OutputStream.nullOutputStream());
      return digest.digest();
    } catch (NoSuchAlgorithmException e) {
      throw new IllegalStateException("every Java has SHA-256", e);
    }
  }

  byte[] toJson() throws IOException {
    ObjectNode node = JSON.createObjectNode();
    node.put(VERSION_FIELD, VERSION);
    node.put("target", target.toString());
    node.put("length", length);
    node.put("sha256", sha256);
    node.put("upload", upload);
    ArrayNode handles = node.putArray("parts");
    parts.forEach(handles::add);
    return JSON.writeValueAsBytes(node);
  }

  /**
   * Reads what {@link #toJson} wrote.
   *
   * @return null if the object is no such pointer, but content itself
   * @throws FileNotFoundException if there is no object
   */
  static PendingUpload read(FileSystem fileSystem, Path path) throws IOException {
    byte[] json;
    try (InputStream in = fileSystem.open(path)) {
      byte[] start = in.readNBytes(MAGIC.length);
      if (!Arrays.equals(start, MAGIC)) {
        return null;
      }
      byte[] rest = in.readAllBytes();
      json = Arrays.copyOf(start, start.length + rest.length);
      System.arraycopy(rest, 0, json, start.length, rest.length);
    }
    JsonNode node = JSON.readTree(json);
    int version = node.path(VERSION_FIELD).asInt();
    if (version != VERSION) {
      throw new IOException(
          path + " is of version " + version + ", this Holdfast reads version " + VERSION
              + ": use the version of Holdfast that staged it, or a newer one");
    }
    List<byte[]> parts = new ArrayList<>();
    for (JsonNode part : node.path("parts")) {
      parts.add(part.binaryValue());
    }
    return new PendingUpload(
        new Path(node.path("target").asText()),
        node.path("length").asLong(),
        node.path("sha256").binaryValue(),
        node.path("upload").binaryValue(),
        parts);
  }
}
